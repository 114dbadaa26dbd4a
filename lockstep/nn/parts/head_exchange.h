// Attention of a context group by heads (nn/context_slice.h, DeepSpeed-Ulysses): each rank attends
// with some heads over all tokens.
//
//   packed rows of own tokens  --all-to-all-->  all tokens, own heads  -->  attention
//   attended rows of own tokens  <--all-to-all--  attended, all tokens
//
// Backward does the same with gradients. A rank sends (c - 1)/c of every tensor.
#pragma once

#include <array>
#include <cstddef>

#include "lockstep/nn/parts/declaration.h"
#include "lockstep/nn/parts/part.h"

namespace lockstep::nn {

struct HeadExchangeOptions {
  std::int64_t query_width = 0;  // of this rank's tokens, all heads
  std::int64_t kv_width = 0;
  Side side = Side::kTarget;
};

// Throws Error(kInvalidArgument) for heads that the ranks of a context group cannot divide by
// heads.
void check_context_heads(const Setup& setup, std::int64_t heads, std::int64_t kv_heads);

class HeadExchangePart : public Part {
 public:
  HeadExchangePart(Place& next, std::string name, const HeadExchangeOptions& options)
      : Part(next, std::move(name), 0, kTensors), options_(options) {}

  static bool is_used(const Setup& setup) {
    return setup.context.size > 1 && setup.context.attention == ContextAttention::kHeads;
  }

  // Without elements where it is not used.
  void declare(Declaration& declaration) const;

  // Forward: own packed rows are made in packed_tokens(), attention writes attended_heads().
  Tensor packed_tokens(const Pass& pass) const;
  void packed_to_heads(const Pass& pass, const Tensor& packed_heads) const;
  const Tensor& attended_heads(const Pass& pass) const { return tensor(pass, kAttendedHeads); }
  void attended_to_tokens(const Pass& pass, const Tensor& attended) const;

  // Backward: the gradient of what was attended, of all tokens; then attention writes
  // dpacked_heads().
  Tensor dattended_to_heads(const Pass& pass, const Tensor& dattended) const;
  Tensor dpacked_heads(const Pass& pass) const;
  void dpacked_to_tokens(const Pass& pass, const Tensor& dpacked) const;

 private:
  // The order of the spec.
  enum Saved : std::size_t {
    kAttendedHeads,
    kForwardRows,  // two workspaces of packed rows, in forward and in backward
    kForwardBlocks,
    kBackwardRows,
    kBackwardBlocks,
    kTensors
  };

  std::int64_t packed_width() const { return options_.query_width + 2 * options_.kv_width; }
  std::array<std::int64_t, 3> packed_segments() const {
    return {options_.query_width, options_.kv_width, options_.kv_width};
  }
  TokenRows rows(const Setup& setup, std::span<const std::int64_t> segments) const;
  // [tokens of the rank, width] and [all tokens, width / ranks].
  Shape of_tokens(const Setup& setup, std::int64_t width) const;
  Shape of_heads(const Setup& setup, std::int64_t width) const;

  HeadExchangeOptions options_;
};

}  // namespace lockstep::nn
