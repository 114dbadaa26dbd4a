#include "lockstep/train/dataset/context_source.h"

#include <utility>
#include <vector>

#include "lockstep/ops/arguments.h"

namespace lockstep::train {
namespace {

class ContextSource : public BatchSource {
 public:
  ContextSource(std::unique_ptr<BatchSource> whole, const nn::ContextGroup& group)
      : whole_(std::move(whole)), group_(group) {}

  std::uint64_t sequences() const override { return whole_->sequences(); }
  std::uint64_t held_back() const override { return whole_->held_back(); }
  std::uint64_t validated() const override { return whole_->validated(); }
  void limit_validation(std::uint64_t sequences) override { whole_->limit_validation(sequences); }
  std::uint64_t validation_batches() const override { return whole_->validation_batches(); }
  std::string left_out() const override { return whole_->left_out(); }

  std::span<const nn::Batch> training(std::uint64_t first, int micro_batches) override {
    return training_.slices_of(whole_->training(first, micro_batches), group_);
  }
  nn::Batch validation(std::uint64_t index) override {
    const nn::Batch whole = whole_->validation(index);
    return validation_.slices_of({&whole, 1}, group_)[0];
  }

 private:
  // Micro-batches of own tokens, with their memory.
  class Slices {
   public:
    std::span<const nn::Batch> slices_of(std::span<const nn::Batch> whole,
                                         const nn::ContextGroup& group) {
      fields_.clear();
      fields_.reserve(4 * whole.size());  // so that none moves
      batches_.assign(whole.begin(), whole.end());
      for (nn::Batch& batch : batches_) {
        batch.shape.sequence /= group.size;
        batch.shape.source_sequence /= group.size;
        for (Tensor* const field : {&batch.tokens, &batch.targets, &batch.types, &batch.source}) {
          if (!ops::is_given(*field)) continue;
          std::vector<std::int32_t>& own =
              fields_.emplace_back(field->elements() / group_size(group));
          nn::copy_own_tokens(group, field->as<const std::int32_t>(), field->shape()[1],
                              std::span(own));
          *field = tensor_of(std::span(own), {batch.shape.batch, field->shape()[1] / group.size});
        }
      }
      return batches_;
    }

   private:
    static std::size_t group_size(const nn::ContextGroup& group) {
      return static_cast<std::size_t>(group.size);
    }

    std::vector<std::vector<std::int32_t>> fields_;
    std::vector<nn::Batch> batches_;
  };

  std::unique_ptr<BatchSource> whole_;
  nn::ContextGroup group_;
  Slices training_;
  Slices validation_;
};

}  // namespace

std::unique_ptr<BatchSource> make_context_source(std::unique_ptr<BatchSource> whole,
                                                 const nn::ContextGroup& group) {
  return std::make_unique<ContextSource>(std::move(whole), group);
}

}  // namespace lockstep::train
