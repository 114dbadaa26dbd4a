// "randomk": k elements at random, k = ratio * elements, as they are.
//
// The elements are cut into k nearly equal strata, and one of each is drawn by the seed
// (base/math/counter_rng.h). Whoever knows the seed knows the positions, so a payload is k floats
// and nothing else; and ranks of one seed send the same elements, so that their sum has no others.
//
// Where any element, drawn or not, is infinite or NaN, all of the payload is NaN.
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
