#include "lockstep/parallel/compression/dense_codecs.h"

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

void PlainCodec::encode_checked(std::span<const float> values, float* residual, std::byte* payload,
                                std::byte*, std::uint64_t) const {
  const std::size_t size = values.size_bytes();
  if (residual == nullptr) {
    std::memcpy(payload, values.data(), size);
    return;
  }
  compression_kernels().add(values.data(), residual, values.size());
  std::memcpy(payload, residual, size);
  std::memset(residual, 0, size);
}

void PlainCodec::decode_checked(const std::byte* payload, std::span<float> out, bool add,
                                std::uint64_t) const {
  if (!add) {
    std::memcpy(out.data(), payload, out.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    float value;
    std::memcpy(&value, payload + i * sizeof(float), sizeof(float));
    out[i] += value;
  }
}

BlockCodec::BlockCodec(Compression format) : format_(format) {
  const CompressionKernels& kernels = compression_kernels();
  switch (format) {
    case Compression::kBf16:
      block_bytes_ = bf16_block_bytes;
      kernels_ = kernels.bf16;
      return;
    case Compression::kF16:
      block_bytes_ = f16_block_bytes;
      kernels_ = kernels.f16;
      return;
    case Compression::kInt8:
      block_bytes_ = int8_block_bytes;
      kernels_ = kernels.int8;
      return;
    case Compression::kInt4:
      block_bytes_ = int4_block_bytes;
      kernels_ = kernels.int4;
      return;
    case Compression::kOnebit:
      block_bytes_ = onebit_block_bytes;
      kernels_ = kernels.onebit;
      return;
    default:
      fail(ErrorCode::kInvalidArgument, "{} is not a block format", parallel::name(format));
  }
}

std::size_t BlockCodec::bytes(std::size_t elements) const {
  const std::size_t rest = elements % kBlock;
  return elements / kBlock * block_bytes_(kBlock) + (rest == 0 ? 0 : block_bytes_(rest));
}

void BlockCodec::encode_checked(std::span<const float> values, float* residual, std::byte* payload,
                                std::byte*, std::uint64_t) const {
  kernels_.encode(values.data(), residual, payload, values.size());
}

void BlockCodec::decode_checked(const std::byte* payload, std::span<float> out, bool add,
                                std::uint64_t) const {
  if (format_ == Compression::kF16) check_exponents(payload, out.size());
  kernels_.decode(payload, out.data(), out.size(), add);
}

void BlockCodec::check_exponents(const std::byte* payload, std::size_t elements) const {
  for (std::size_t first = 0; first < elements; first += kBlock) {
    const auto exponent =
        std::to_integer<std::uint8_t>(payload[first / kBlock * block_bytes_(kBlock)]);
    if (exponent < kLeastF16Exponent || exponent > kMostF16Exponent) {
      fail(ErrorCode::kProtocol,
           "f16: the block of elements {} and following has exponent {}, which is not valid: the "
           "payload was damaged on its way, or something else wrote it",
           first, exponent);
    }
  }
}

}  // namespace lockstep::parallel
