#include "lockstep/train/dataset/sequence_source.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/system/available_memory.h"
#include "lockstep/base/text/units.h"

namespace lockstep::train {
namespace {

template <class T>
std::span<T> part_of(std::vector<T>& field, std::int64_t index, std::int64_t width) {
  return std::span(field).subspan(static_cast<std::size_t>(index * width),
                                  static_cast<std::size_t>(width));
}

// Micro-batch `index` of a field; an absent one stays as nn::Batch has it.
template <class T>
void view(Tensor& tensor, std::vector<T>& field, int index, std::int64_t batch,
          std::int64_t width) {
  if (width == 0) return;
  tensor = tensor_of(part_of(field, index, batch * width), {batch, width});
}

// Throws Error(kInvalidArgument) where the machine has too little memory for the data of a step.
void check_memory(int micro_batches, std::int64_t sequences, double bytes) {
  const auto free = static_cast<double>(available_memory_bytes());
  if (free == 0 || bytes <= free) return;
  fail(ErrorCode::kInvalidArgument,
       "a step of {} micro-batches of {} sequences needs {} for its data alone, but this machine "
       "has {} free; choose a smaller train.global_batch_size or train.gradient_accumulation_steps",
       micro_batches, sequences, format_bytes(bytes), format_bytes(free));
}

}  // namespace

double BatchMemory::bytes(int micro_batches) const {
  const std::int64_t wide = widths_.tokens + widths_.targets + widths_.types + widths_.source +
                            widths_.inputs + widths_.outputs;
  const std::int64_t narrow = widths_.key_mask + widths_.source_mask;
  const auto sequence = static_cast<double>(wide * std::int64_t{sizeof(std::int32_t)} + narrow);
  return micro_batches * (static_cast<double>(shape_.batch) * sequence + sizeof(nn::Batch));
}

void BatchMemory::reset(int micro_batches) {
  if (static_cast<std::size_t>(micro_batches) > batches_.capacity()) {
    check_memory(micro_batches, shape_.batch, bytes(micro_batches));
  }
  const auto clear = [&](auto& field, std::int64_t width, auto blank) {
    field.assign(static_cast<std::size_t>(micro_batches * shape_.batch * width), blank);
  };
  clear(tokens_, widths_.tokens, 0);
  clear(targets_, widths_.targets, ops::kNoTarget);
  clear(types_, widths_.types, 0);
  clear(source_, widths_.source, 0);
  clear(key_mask_, widths_.key_mask, std::uint8_t{1});
  clear(source_mask_, widths_.source_mask, std::uint8_t{1});
  clear(inputs_, widths_.inputs, 0.0f);
  clear(outputs_, widths_.outputs, 0.0f);
  batches_.assign(static_cast<std::size_t>(micro_batches), {});
  for (int i = 0; i < micro_batches; ++i) {
    nn::Batch& batch = batches_[static_cast<std::size_t>(i)];
    batch.shape = shape_;
    view(batch.tokens, tokens_, i, shape_.batch, widths_.tokens);
    view(batch.targets, targets_, i, shape_.batch, widths_.targets);
    view(batch.types, types_, i, shape_.batch, widths_.types);
    view(batch.key_mask, key_mask_, i, shape_.batch, widths_.key_mask);
    view(batch.source, source_, i, shape_.batch, widths_.source);
    view(batch.source_mask, source_mask_, i, shape_.batch, widths_.source_mask);
    view(batch.inputs, inputs_, i, shape_.batch, widths_.inputs);
    view(batch.outputs, outputs_, i, shape_.batch, widths_.outputs);
  }
}

SequenceFields BatchMemory::sequence(std::int64_t index) {
  return {.tokens = part_of(tokens_, index, widths_.tokens),
          .targets = part_of(targets_, index, widths_.targets),
          .types = part_of(types_, index, widths_.types),
          .key_mask = part_of(key_mask_, index, widths_.key_mask),
          .source = part_of(source_, index, widths_.source),
          .source_mask = part_of(source_mask_, index, widths_.source_mask),
          .inputs = part_of(inputs_, index, widths_.inputs),
          .outputs = part_of(outputs_, index, widths_.outputs)};
}

SequenceSource::SequenceSource(const nn::BatchShape& shape, const SequenceWidths& widths)
    : batch_(shape.batch), widths_(widths), training_(shape, widths), validation_(shape, widths) {}

std::uint64_t SequenceSource::validated() const { return std::min(limit_, validation_sequences()); }

std::uint64_t SequenceSource::validation_batches() const {
  const auto batch = static_cast<std::uint64_t>(batch_);
  return (validated() + batch - 1) / batch;
}

std::span<const nn::Batch> SequenceSource::training(std::uint64_t first, int micro_batches) {
  if (micro_batches < 1) {
    fail(ErrorCode::kInvalidArgument, "the number of micro-batches is {}; it must be 1 or more",
         micro_batches);
  }
  training_.reset(micro_batches);
  for (std::int64_t i = 0; i < micro_batches * batch_; ++i) {
    fill_training(training_.sequence(i), first + static_cast<std::uint64_t>(i));
  }
  return training_.batches();
}

nn::Batch SequenceSource::validation(std::uint64_t index) {
  if (index >= validation_batches()) {
    fail(ErrorCode::kInvalidArgument, "validation has {} micro-batches; number {} does not exist",
         validation_batches(), index);
  }
  validation_.reset(1);
  for (std::int64_t i = 0; i < batch_; ++i) {
    const std::uint64_t sequence =
        index * static_cast<std::uint64_t>(batch_) + static_cast<std::uint64_t>(i);
    if (sequence < validated()) fill_validation(validation_.sequence(i), sequence);
  }
  return validation_.batches()[0];
}

}  // namespace lockstep::train
