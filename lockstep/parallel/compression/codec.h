// A Codec writes a run of gradients as a payload of fewer bytes, and reads it back.
//
// The size of a payload is a pure function of the number of elements, so that memory and messages
// are planned before the first step. Encoding is deterministic, and payloads mean the same on every
// machine.
//
// Error feedback. What a payload does not say is not lost: it stays in the *residual*, one float
// per element that belongs to the run and is kept from step to step (zero at first). It is added to
// the next values before these are encoded, so over many steps everything arrives. An empty
// residual means no feedback.
//
// Infinity and NaN stay visible: values with such an element decode to values with such an element
// (perhaps others: a whole block of them), so that whoever looks for them finds them. The residual
// never keeps any: it becomes 0 there.
//
// A payload may come from a peer. One that is no payload of so many elements is refused with
// Error(kProtocol) before anything is written.
//
// A codec has no state: any thread may use it, also several at once.
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
  // Of a payload; and of the memory that encode() works in.
  virtual std::size_t bytes(std::size_t elements) const = 0;
  virtual std::size_t scratch_bytes(std::size_t) const { return 0; }
  // Whether it loses so much that training needs a residual.
  virtual bool needs_residual() const { return false; }

  // payload = values + residual; residual = what the payload does not say of them. Spans have their
  // exact sizes, but for an empty residual and a larger scratch (on an address for floats). `seed`
  // is what random choices come from: the same for all who encode and decode together, another in
  // every step.
  void encode(std::span<const float> values, std::span<float> residual,
              std::span<std::byte> payload, std::span<std::byte> scratch, std::uint64_t seed) const;

  // out = what the payload says. / sums += what it says.
  void decode(std::span<const std::byte> payload, std::span<float> out, std::uint64_t seed) const;
  void decode_add(std::span<const std::byte> payload, std::span<float> sums,
                  std::uint64_t seed) const;

  // Those of the values become 0 of which the payload, an own one, says something; where it says
  // of infinity or NaN, so do all that are not finite.
  void clear_sent(std::span<const std::byte> payload, std::span<float> values,
                  std::uint64_t seed) const;

 private:
  // The same with sizes checked and at least one element. `residual` is null where there is none.
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
