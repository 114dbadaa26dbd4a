// The encoding of slices between workers and servers.
//
//                  compression    f32 gradients     16-bit gradients   parameters come back
//                  none           as they are       as they are        as workers compute with them
//                  bf16, f16      16 bits           the same, but for  f32 in 16 bits, too; others
//                                                   their own type     as they are
//                  others         payloads of the codec, with error    as they are
//                                 feedback at the worker
//
// Parameters are never compressed below 16 bits: error feedback corrects a gradient later, but a
// wrong parameter makes all gradients computed with it wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lockstep/parallel/compression/codec.h"
#include "lockstep/parallel/server/slices/served_layout.h"

namespace lockstep::parallel {

class WireFormat {
 public:
  explicit WireFormat(const ServedLayout& layout);

  // The codec of gradients; nullptr: they are sent unchanged.
  const Codec* gradients() const { return gradients_.get(); }
  const Codec* parameters() const { return parameters_.get(); }
  bool has_residual() const { return gradients_ && gradients_->needs_residual(); }

  // The bytes of the payload of a push, and of its answer.
  std::size_t pushed_bytes(std::size_t elements) const;
  std::size_t pulled_bytes(std::size_t elements) const;

  // The seed of the codec for a slice: the same on all workers in a step.
  static std::uint64_t seed(std::int64_t step, std::size_t slice);

 private:
  DType gradient_;
  DType parameter_;
  std::unique_ptr<Codec> gradients_;
  std::unique_ptr<Codec> parameters_;
};

}  // namespace lockstep::parallel
