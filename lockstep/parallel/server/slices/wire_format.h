// How the elements of a slice are written between workers and servers.
//
//                  compression    f32 gradients     16-bit gradients   parameters come back
//                  none           as they are       as they are        as workers compute with them
//                  bf16, f16      16 bits           the same, but for  f32 in 16 bits, too; others
//                                                   their own type     as they are
//                  others         payloads of the codec, with error    as they are
//                                 feedback at the worker
//
// Parameters are never compressed further than to 16 bits: what is lost of a gradient comes with a
// later one, but a parameter that is wrong makes every gradient wrong that is computed with it.
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

  // What writes them; nothing: they travel as they are.
  const Codec* gradients() const { return gradients_.get(); }
  const Codec* parameters() const { return parameters_.get(); }
  bool has_residual() const { return gradients_ && gradients_->needs_residual(); }

  // Of the payload of a push, and of the answer to it.
  std::size_t pushed_bytes(std::size_t elements) const;
  std::size_t pulled_bytes(std::size_t elements) const;

  // What random choices of a slice's codec come from: those who push it in a step agree.
  static std::uint64_t seed(std::int64_t step, std::size_t slice);

 private:
  DType gradient_;
  DType parameter_;
  std::unique_ptr<Codec> gradients_;
  std::unique_ptr<Codec> parameters_;
};

}  // namespace lockstep::parallel
