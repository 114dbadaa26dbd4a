// Rows of a table, each a sequence of one. A last micro-batch of validation is filled up with the
// first rows of validation again: an output cannot be marked as none.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/token_file/windows.h"
#include "lockstep/nn/parameters/seed.h"
#include "lockstep/train/dataset/sequence_source.h"

namespace lockstep::train {
namespace {

std::uint64_t rows_of(const Dataset& dataset) {
  if (dataset.table.empty() || dataset.features < 1) {
    fail(ErrorCode::kInvalidArgument, "the model trains on numbers; give data.table");
  }
  return dataset.table.size() / static_cast<std::uint64_t>(dataset.features + 1);
}

class TableSource final : public SequenceSource {
 public:
  TableSource(const Dataset& dataset, const SourceSetup& setup)
      : SequenceSource(setup.shape, {.inputs = dataset.features, .outputs = 1}),
        dataset_(dataset),
        rows_(rows_of(dataset)),
        held_back_(held_back_examples(rows_, dataset.validation_fraction)),
        batch_(static_cast<std::uint64_t>(setup.shape.batch)),
        order_(rows_ - held_back_, 1, nn::seed_for(setup.seed, "data")) {}

  std::uint64_t sequences() const override { return order_.windows(); }

 protected:
  std::uint64_t validation_sequences() const override {
    return (held_back_ + batch_ - 1) / batch_ * batch_;
  }

  void fill_training(const SequenceFields& fields, std::uint64_t sequence) override {
    fill(fields, order_.first_position(sequence));
  }
  void fill_validation(const SequenceFields& fields, std::uint64_t sequence) override {
    fill(fields, rows_ - held_back_ + sequence % held_back_);
  }

 private:
  void fill(const SequenceFields& fields, std::uint64_t number) const {
    const auto width = static_cast<std::size_t>(dataset_.features + 1);
    const std::span cells = std::span(dataset_.table).subspan(number * width, width);
    std::copy(cells.begin(), cells.end() - 1, fields.inputs.begin());
    fields.outputs[0] = cells.back();
  }

  const Dataset& dataset_;
  std::uint64_t rows_;
  std::uint64_t held_back_;  // at the end
  std::uint64_t batch_;
  data::WindowOrder order_;
};

}  // namespace

std::unique_ptr<BatchSource> make_table_source(const Dataset& dataset, const SourceSetup& setup) {
  return std::make_unique<TableSource>(dataset, setup);
}

}  // namespace lockstep::train
