// "topk": the k elements of largest magnitude, k = ratio * elements.
//
// Among equal magnitudes the lower position wins. A *segment* is 65536 elements. A payload:
//
//   per segment  32 bits: how many of the k elements lie in it
//   k x 16 bits  their positions in their segments, rising
//   k x 16 bits  their values as bf16
//
// so an element that is sent takes 4 bytes. Infinity and NaN count as larger than all numbers.
#pragma once

#include "lockstep/parallel/compression/codec.h"
#include "lockstep/parallel/compression/sparse.h"

namespace lockstep::parallel {

class TopkCodec : public Codec {
 public:
  explicit TopkCodec(double ratio);

  std::string_view name() const override { return parallel::name(Compression::kTopk); }
  std::size_t bytes(std::size_t elements) const override;
  std::size_t scratch_bytes(std::size_t elements) const override;
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
