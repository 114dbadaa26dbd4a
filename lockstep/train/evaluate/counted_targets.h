// What an evaluation counts of the targets of its micro-batches besides their losses.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::train {

// The bytes of text that each token stands for, 0 for tokens that stand for no text; empty for a
// tokenizer that throws some of the text away.
std::vector<std::uint32_t> bytes_of_tokens(const data::Tokenizer& tokenizer);

// How many targets are the likeliest token of their logits.
class CorrectTargets {
 public:
  // Of micro-batches of that many tokens.
  CorrectTargets(std::int64_t tokens, std::int64_t classes, DType dtype, Ops& ops);

  // To be filled by Replica::evaluate().
  Tensor logits() const;
  // Counts those of a batch on the host, when the operations that make its logits are queued.
  void add(const nn::Batch& batch);
  std::uint64_t count() const { return count_; }

 private:
  std::int64_t tokens_;
  std::int64_t classes_;
  DType dtype_;
  Ops& ops_;
  Buffer logits_;
  Buffer wide_;  // of some rows, f32
  std::uint64_t count_ = 0;
};

}  // namespace lockstep::train
