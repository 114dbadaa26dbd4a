// A Codec encodes gradients as a payload of fewer bytes, and decodes it.
//
// The size of a payload is a pure function of the number of elements, so memory and messages can be
// planned before the first step. Encoding is deterministic, and payloads are portable.
//
// Error feedback. The encoding error is not lost: it stays in the *residual*, one float per
// element, which is kept from step to step (zero at first). It is added to the next values before
// they are encoded, so over many steps everything arrives. An empty residual means no feedback.
//
// Infinity and NaN stay visible: values with such an element decode to values with such an element
// (perhaps other elements, or a whole block), so overflow is still detected. The residual becomes 0
// there.
//
// Decoding throws Error(kProtocol), before anything is written, for a payload that is invalid for
// this number of elements.
//
// A codec has no state and is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "lockstep/parallel/compression/options.h"

namespace lockstep::parallel {

class Codec {
 public:
  virtual ~Codec() = default;
  Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  virtual std::string_view name() const = 0;
  // The bytes of a payload, and of the workspace of encode().
  virtual std::size_t bytes(std::size_t elements) const = 0;
  virtual std::size_t scratch_bytes(std::size_t) const { return 0; }
  // Whether training needs a residual.
  virtual bool needs_residual() const { return false; }

  // payload = values + residual; residual = the encoding error. Spans have exact sizes, except for
  // an empty residual and a larger scratch (aligned for floats). `seed` determines random choices:
  // the same for all ranks that encode and decode together, different in every step.
  void encode(std::span<const float> values, std::span<float> residual,
              std::span<std::byte> payload, std::span<std::byte> scratch, std::uint64_t seed) const;

  // out = the decoded payload. / sums += the decoded payload.
  void decode(std::span<const std::byte> payload, std::span<float> out, std::uint64_t seed) const;
  void decode_add(std::span<const std::byte> payload, std::span<float> sums,
                  std::uint64_t seed) const;

  // Sets to 0 the values whose elements are in the payload, which this codec made. If the payload
  // has infinity or NaN, all non-finite values become 0, too.
  void clear_sent(std::span<const std::byte> payload, std::span<float> values,
                  std::uint64_t seed) const;

 private:
  // The same after the sizes were checked, with at least one element. `residual` may be null.
  virtual void encode_checked(std::span<const float> values, float* residual, std::byte* payload,
                              std::byte* scratch, std::uint64_t seed) const = 0;
  virtual void decode_checked(const std::byte* payload, std::span<float> out, bool add,
                              std::uint64_t seed) const = 0;
  virtual void clear_sent_checked(const std::byte* payload, std::span<float> values,
                                  std::uint64_t seed) const;

  void check_payload(std::size_t bytes, std::size_t elements) const;
};

// Throws Error(kInvalidArgument) for a ratio outside of (0, 1].
std::unique_ptr<Codec> make_codec(const CompressionOptions& options);

}  // namespace lockstep::parallel
