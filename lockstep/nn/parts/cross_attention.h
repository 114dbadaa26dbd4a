// Multi-head attention of a decoder to the memory of its encoder: queries from the decoder's rows,
// keys and values from the memory's, packed. Every rank of a tensor group has the whole memory.
//
// The ranks of a context group have some tokens of both sides, and attend by heads: queries, and
// keys with values, are turned from own tokens to own heads, and what is attended back
// (nn/context_axis.h).
#pragma once

#include <cstddef>

#include "lockstep/nn/parts/head_exchange.h"
#include "lockstep/nn/parts/linear.h"
#include "lockstep/nn/parts/self_attention.h"

namespace lockstep::nn {

class CrossAttentionPart : public Part {
 public:
  // Uses hidden, heads and their width and scale, biases, dropout and stddevs of the options.
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
    kDAttended,  // where heads are wider than the workspace
    // Where heads are exchanged: what was attended by them, and two workspaces, in forward and in
    // backward.
    kAttendedHeads,
    kForwardRows,
    kForwardBlocks,
    kBackwardRows,
    kBackwardBlocks,
    kTensors
  };

  ops::AttentionShape shape(const Setup& setup) const;
  // How many ranks exchange heads.
  static std::int64_t ranks(const Setup& setup) {
    return HeadExchangePart::is_used(setup) ? setup.context.size : 1;
  }
  // Makes rows of one side's tokens in `heads`, which exchanges them where there are ranks for it.
  void make_heads(const Pass& pass, const LinearPart& layer, const Tensor& x, Side side,
                  std::span<const std::int64_t> segments, const Tensor& heads) const;
  // Turns the gradient of such rows, in place, from own heads to own tokens.
  void return_to_tokens(const Pass& pass, Side side, std::span<const std::int64_t> segments,
                        const Tensor& rows) const;
  ops::Dropout dropout(const Pass& pass) const;

  AttentionOptions options_;
  LinearPart query_;
  LinearPart key_value_;
  LinearPart projection_;
};

}  // namespace lockstep::nn
