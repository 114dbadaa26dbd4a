// The interface of blocks for text generation.
//
// A text is read in chunks of one or more tokens: the prompt, then the generated tokens one by one.
// The keys and values of attention, which later tokens need, stay in a cache of a fixed number of
// positions. A block declares its cache and its workspace as shapes, as it does for training
// (nn/block.h), and nn/generate/decoder.h lays them out and runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/nn/block.h"

namespace lockstep::nn {

struct DecodeSetup {
  std::int64_t rows = 1;       // tokens of one sequence that are read at once
  std::int64_t positions = 1;  // of the cache, for each sequence
  std::int64_t batch = 1;      // sequences
  bool steps = false;          // one token of every sequence is read instead
  DType dtype = DType::kF32;

  // The Setup of a chunk of the text.
  Setup piece() const {
    const BatchShape step{.batch = batch, .sequence = 1};
    return {.shape = steps ? step : BatchShape{.batch = 1, .sequence = rows}, .dtype = dtype};
  }
};

struct DecodeSpec {
  std::vector<TensorSpec> cache;    // [batch, positions, ...]; the same for any number of rows
  std::vector<TensorSpec> tensors;  // while the block runs; those of more rows are no smaller
  std::size_t scratch = 0;          // the most that one of its operations needs, now or later
  std::int64_t classes = 0;         // of the last block: how many logits there are
  bool reads_back = false;          // as BlockSpec's
};

// One chunk of the text, or one token of every sequence. The pass has setup.piece(), is not for
// training, and its tensors and parameters are in the order of the specs.
struct DecodePass {
  const Pass& pass;
  std::int64_t position = 0;      // of a chunk's first token: the number of earlier tokens
  std::span<const Tensor> cache;  // of a chunk: that of its sequence, [positions, ...]
  Tensor lengths;  // of steps: i32 [batch] on the device, how many tokens came before each

  bool steps() const { return ops::is_given(lengths); }
};

class Decoding {
 public:
  // Throws Error(kInvalidArgument) if the block has fewer positions.
  virtual DecodeSpec decode_spec(const DecodeSetup& setup, const Ops& ops) const = 0;
  // Reads pass.in (the first block: the batch's tokens) and the cache up to `position`, adds to the
  // cache, and writes pass.out. The last block writes pass.logits: those of the last token of a
  // chunk, or of every sequence.
  virtual void decode(const DecodePass& at) const = 0;

 protected:
  ~Decoding() = default;
};

// The memory of a block's forward as a DecodeSpec.
inline DecodeSpec forward_of(BlockSpec spec) {
  DecodeSpec decode;
  decode.tensors = std::move(spec.tensors);
  decode.scratch = spec.scratch;
  decode.reads_back = spec.reads_back;
  for (TensorSpec& tensor : decode.tensors) {
    if (tensor.life == Life::kBackward) tensor.shape = {0};
  }
  return decode;
}

}  // namespace lockstep::nn
