// "randomk": k random elements, k = ratio * elements, unrounded.
//
// The elements are cut into k nearly equal strata, and one of each is drawn by the seed
// (base/math/counter_rng.h). The seed determines the positions, so a payload is just k floats; and
// ranks with the same seed send the same elements, so their sum has no others.
//
// If any element, drawn or not, is infinite or NaN, the whole payload is NaN.
#pragma once

#include "lockstep/parallel/compression/codec.h"
#include "lockstep/parallel/compression/sparse.h"

namespace lockstep::parallel {

class RandomkCodec : public Codec {
 public:
  explicit RandomkCodec(double ratio);

  std::string_view name() const override { return parallel::name(Compression::kRandomk); }
  std::size_t bytes(std::size_t elements) const override;
  bool needs_residual() const override { return true; }

 private:
  void encode_checked(std::span<const float> values, float* residual, std::byte* payload,
                      std::byte* scratch, std::uint64_t seed) const override;
  void decode_checked(const std::byte* payload, std::span<float> out, bool add,
                      std::uint64_t seed) const override;
  void clear_sent_checked(const std::byte* payload, std::span<float> values,
                          std::uint64_t seed) const override;

  double ratio_;
};

}  // namespace lockstep::parallel
