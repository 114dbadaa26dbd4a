// Multi-head attention of a decoder to the memory of its encoder: queries from the decoder's rows,
// keys and values from the memory's, packed. Every rank of a tensor group has the whole memory.
#pragma once

#include <cstddef>

#include "lockstep/nn/parts/linear.h"
#include "lockstep/nn/parts/self_attention.h"

namespace lockstep::nn {

class CrossAttentionPart : public Part {
 public:
  // Uses hidden, heads, biases, dropout and stddevs of the options.
  CrossAttentionPart(Place& next, const std::string& name, const AttentionOptions& options);

  void declare(Declaration& declaration) const;

  // Reads pass.in.memory.
  void forward(const Pass& pass, const Tensor& x, const Tensor& y) const;
  // Writes dx, and adds to pass.din.memory. `workspace` is [tokens, hidden]; dx may be
  // x.
  void backward(const Pass& pass, const Tensor& dy, const Tensor& x, const Tensor& workspace,
                const Tensor& dx) const;

 private:
  // The order of the spec.
  enum Saved : std::size_t {
    kQueries,
    kKeysValues,
    kAttended,
    kLogSum,
    kDQueries,
    kDKeysValues,
    kTensors
  };

  ops::AttentionShape shape(const Setup& setup) const;
  ops::Dropout dropout(const Pass& pass) const;

  AttentionOptions options_;
  LinearPart query_;
  LinearPart key_value_;
  LinearPart projection_;
};

}  // namespace lockstep::nn
