#include "lockstep/parallel/compression/codec.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/parallel/compression/dense_codecs.h"
#include "lockstep/parallel/compression/randomk_codec.h"
#include "lockstep/parallel/compression/topk_codec.h"

namespace lockstep::parallel {

void Codec::encode(std::span<const float> values, std::span<float> residual,
                   std::span<std::byte> payload, std::span<std::byte> scratch,
                   std::uint64_t seed) const {
  if (!residual.empty() && residual.size() != values.size()) {
    fail(ErrorCode::kInvalidArgument,
         "{}: got {} values with a residual of {} elements; they must be equal", name(),
         values.size(), residual.size());
  }
  if (payload.size() != bytes(values.size())) {
    fail(ErrorCode::kInvalidArgument, "{}: {} elements are encoded in {} bytes, not in {}", name(),
         values.size(), bytes(values.size()), payload.size());
  }
  if (scratch.size() < scratch_bytes(values.size()) ||
      reinterpret_cast<std::uintptr_t>(scratch.data()) % alignof(float) != 0) {
    fail(ErrorCode::kInvalidArgument,
         "{}: encoding {} elements needs a workspace of {} bytes, aligned for floats; got {} bytes",
         name(), values.size(), scratch_bytes(values.size()), scratch.size());
  }
  if (values.empty()) return;
  encode_checked(values, residual.empty() ? nullptr : residual.data(), payload.data(),
                 scratch.data(), seed);
}

void Codec::decode(std::span<const std::byte> payload, std::span<float> out,
                   std::uint64_t seed) const {
  check_payload(payload.size(), out.size());
  if (!out.empty()) decode_checked(payload.data(), out, false, seed);
}

void Codec::decode_add(std::span<const std::byte> payload, std::span<float> sums,
                       std::uint64_t seed) const {
  check_payload(payload.size(), sums.size());
  if (!sums.empty()) decode_checked(payload.data(), sums, true, seed);
}

void Codec::clear_sent(std::span<const std::byte> payload, std::span<float> values,
                       std::uint64_t seed) const {
  check_payload(payload.size(), values.size());
  if (!values.empty()) clear_sent_checked(payload.data(), values, seed);
}

// Most say something of every element.
void Codec::clear_sent_checked(const std::byte*, std::span<float> values, std::uint64_t) const {
  std::fill(values.begin(), values.end(), 0.0f);
}

void Codec::check_payload(std::size_t given, std::size_t elements) const {
  if (given == bytes(elements)) return;
  fail(ErrorCode::kProtocol,
       "{}: a payload of {} elements has {} bytes, but got {}; do all ranks have the same "
       "parallel.compression and parallel.compression_ratio?",
       name(), elements, bytes(elements), given);
}

std::unique_ptr<Codec> make_codec(const CompressionOptions& options) {
  switch (options.compression) {
    case Compression::kNone:
      return std::make_unique<PlainCodec>();
    case Compression::kBf16:
    case Compression::kF16:
    case Compression::kInt8:
    case Compression::kInt4:
    case Compression::kOnebit:
      return std::make_unique<BlockCodec>(options.compression);
    case Compression::kTopk:
      return std::make_unique<TopkCodec>(options.ratio);
    case Compression::kRandomk:
      return std::make_unique<RandomkCodec>(options.ratio);
  }
  fail(ErrorCode::kInvalidArgument, "unknown codec number {}",
       static_cast<int>(options.compression));
}

}  // namespace lockstep::parallel
