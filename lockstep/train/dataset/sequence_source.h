// The base of all batch sources: memory for micro-batches, filled one sequence at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/ops/arguments.h"
#include "lockstep/train/dataset/batch_source.h"

namespace lockstep::train {

// Which fields of nn::Batch a source has, by the elements of a sequence; 0: not at all.
struct SequenceWidths {
  std::int64_t tokens = 0;
  std::int64_t targets = 0;
  std::int64_t types = 0;
  std::int64_t key_mask = 0;
  std::int64_t source = 0;
  std::int64_t source_mask = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
};

// One sequence's part of a micro-batch. What is not filled in is blank: tokens and types 0, no
// targets, masks 1.
struct SequenceFields {
  std::span<std::int32_t> tokens;
  std::span<std::int32_t> targets;
  std::span<std::int32_t> types;
  std::span<std::uint8_t> key_mask;
  std::span<std::int32_t> source;
  std::span<std::uint8_t> source_mask;
  std::span<float> inputs;
  std::span<float> outputs;
};

// The memory of some micro-batches.
class BatchMemory {
 public:
  BatchMemory(const nn::BatchShape& shape, const SequenceWidths& widths)
      : shape_(shape), widths_(widths) {}

  // Prepares N micro-batches, all of their sequences blank. Throws Error(kInvalidArgument) where
  // that is more than the machine has free.
  void reset(int micro_batches);
  SequenceFields sequence(std::int64_t index);
  std::span<const nn::Batch> batches() const { return batches_; }

 private:
  double bytes(int micro_batches) const;

  nn::BatchShape shape_;
  SequenceWidths widths_;
  std::vector<std::int32_t> tokens_, targets_, types_, source_;
  std::vector<std::uint8_t> key_mask_, source_mask_;
  std::vector<float> inputs_, outputs_;
  std::vector<nn::Batch> batches_;
};

class SequenceSource : public BatchSource {
 public:
  SequenceSource(const nn::BatchShape& shape, const SequenceWidths& widths);

  std::uint64_t held_back() const final { return validation_sequences(); }
  std::uint64_t validated() const final;
  void limit_validation(std::uint64_t sequences) final { limit_ = sequences; }
  std::uint64_t validation_batches() const final;
  std::span<const nn::Batch> training(std::uint64_t first, int micro_batches) final;
  nn::Batch validation(std::uint64_t index) final;

  // For a source that is made of others: one sequence of training, or of validation, into blank
  // fields of these widths.
  const SequenceWidths& widths() const { return widths_; }
  void fill_one(const SequenceFields& fields, std::uint64_t sequence, bool training) {
    training ? fill_training(fields, sequence) : fill_validation(fields, sequence);
  }

 protected:
  // Sequences that are held back; the last micro-batch is filled up with blank sequences.
  virtual std::uint64_t validation_sequences() const = 0;
  virtual void fill_training(const SequenceFields& fields, std::uint64_t sequence) = 0;
  virtual void fill_validation(const SequenceFields& fields, std::uint64_t sequence) = 0;

 private:
  std::int64_t batch_;
  SequenceWidths widths_;
  std::uint64_t limit_ = std::numeric_limits<std::uint64_t>::max();  // of validation
  BatchMemory training_;
  BatchMemory validation_;
};

// How many of the examples at the end are held back.
constexpr std::uint64_t held_back_examples(std::uint64_t examples, double fraction) {
  return static_cast<std::uint64_t>(static_cast<double>(examples) * fraction);
}

// The kinds of sources; make_batch_source() has checked what they have in common.
std::unique_ptr<SequenceSource> make_next_token_source(const Dataset& dataset,
                                                       const SourceSetup& setup);
std::unique_ptr<SequenceSource> make_masked_token_source(const Dataset& dataset,
                                                         const SourceSetup& setup);
std::unique_ptr<BatchSource> make_translation_source(const Dataset& dataset,
                                                     const SourceSetup& setup);
std::unique_ptr<BatchSource> make_table_source(const Dataset& dataset, const SourceSetup& setup);
// Of the parts of a mixture, each with the source that `make` makes of it.
using MakeSequenceSource =
    std::function<std::unique_ptr<SequenceSource>(const Dataset& part, const SourceSetup& setup)>;
std::unique_ptr<BatchSource> make_mixture_source(const Dataset& dataset, const SourceSetup& setup,
                                                 const MakeSequenceSource& make);

}  // namespace lockstep::train
