// Codecs that encode every element.
#pragma once

#include "lockstep/parallel/compression/codec.h"
#include "lockstep/parallel/compression/kernels/kernels.h"

namespace lockstep::parallel {

// "none": the floats themselves.
class PlainCodec : public Codec {
 public:
  std::string_view name() const override { return parallel::name(Compression::kNone); }
  std::size_t bytes(std::size_t elements) const override { return elements * sizeof(float); }

 private:
  void encode_checked(std::span<const float> values, float* residual, std::byte* payload,
                      std::byte* scratch, std::uint64_t seed) const override;
  void decode_checked(const std::byte* payload, std::span<float> out, bool add,
                      std::uint64_t seed) const override;
};

// Blocks of kBlock elements, each with its own scale (kernels.h):
//   bf16    rounded to nearest even
//   f16     the same, after a power of two that keeps the largest of the block in range
//   int8    127 steps to the largest magnitude of the block, to the nearest
//   int4    7 steps, the same
//   onebit  the sign; every element becomes the mean of those of its sign in the block (1-bit SGD)
class BlockCodec : public Codec {
 public:
  explicit BlockCodec(Compression format);

  std::string_view name() const override { return parallel::name(format_); }
  std::size_t bytes(std::size_t elements) const override;
  bool needs_residual() const override {
    return format_ == Compression::kInt8 || format_ == Compression::kInt4 ||
           format_ == Compression::kOnebit;
  }

 private:
  void encode_checked(std::span<const float> values, float* residual, std::byte* payload,
                      std::byte* scratch, std::uint64_t seed) const override;
  void decode_checked(const std::byte* payload, std::span<float> out, bool add,
                      std::uint64_t seed) const override;
  void check_exponents(const std::byte* payload, std::size_t elements) const;

  Compression format_;
  std::size_t (*block_bytes_)(std::size_t count);
  CompressionKernels::BlockFormat kernels_;
};

}  // namespace lockstep::parallel
