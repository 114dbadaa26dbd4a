// The input of a model: one micro-batch. Models read different fields: a language model tokens and
// targets, BERT also types and key_mask, an encoder-decoder also source and source_mask, a linear
// model inputs and outputs.
#pragma once

#include <cstdint>

#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

struct BatchShape {
  std::int64_t batch = 1;
  std::int64_t sequence = 1;
  std::int64_t source_sequence = 0;  // of an encoder-decoder

  std::int64_t tokens() const { return batch * sequence; }
  std::int64_t source_tokens() const { return batch * source_sequence; }
};

struct Batch {
  BatchShape shape;
  Tensor tokens;       // i32 [batch, sequence]
  Tensor targets;      // i32 [batch, sequence]; ops::kNoTarget: no target
  Tensor types;        // i32 [batch, sequence]
  Tensor key_mask;     // u8 [batch, sequence]; 0 where a token is padding; in a context group, and
                       // of a slice, of the whole sequence
  Tensor source;       // i32 [batch, source_sequence]
  Tensor source_mask;  // u8 [batch, source_sequence]; likewise
  Tensor inputs;       // f32 [batch, features]
  Tensor outputs;      // f32 [batch, 1]
};

}  // namespace lockstep::nn
