#include "lockstep/parallel/zero/part_wire.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/parallel/compression/convert.h"
#include "lockstep/parallel/compression/dense_codecs.h"

namespace lockstep::parallel {
namespace {

// Elements per chunk. A multiple of the codec's blocks, so that payloads of chunks are contiguous
// in the payload.
constexpr std::size_t kPiece = 32 * kBlock;
using Floats = std::array<float, kPiece>;

ConstData piece_of(ConstData data, std::size_t first, std::size_t count) {
  return {data.bytes + first * size_of(data.dtype), count, data.dtype};
}
Data piece_of(Data data, std::size_t first, std::size_t count) {
  return {data.bytes + first * size_of(data.dtype), count, data.dtype};
}

template <class Body>
void for_pieces(std::size_t elements, Body&& body) {
  for (std::size_t first = 0; first < elements; first += kPiece) {
    body(first, std::min(kPiece, elements - first));
  }
}

std::unique_ptr<Codec> codec_of(Quantization quantization) {
  switch (quantization) {
    case Quantization::kNone:
      return nullptr;
    case Quantization::kInt8:
      return std::make_unique<BlockCodec>(Compression::kInt8);
    case Quantization::kInt4:
      return std::make_unique<BlockCodec>(Compression::kInt4);
  }
  fail(ErrorCode::kInvalidArgument, "unknown quantization number {}",
       static_cast<int>(quantization));
}

void check_sizes(std::size_t payload, std::size_t bytes, std::size_t elements) {
  if (payload == bytes) return;
  fail(ErrorCode::kInvalidArgument, "a shard of {} elements is sent as {} bytes, not {}", elements,
       bytes, payload);
}

}  // namespace

PartWire::PartWire(Quantization quantization, DType dtype)
    : dtype_(dtype), codec_(codec_of(quantization)) {}

std::size_t PartWire::bytes(std::size_t elements) const {
  return is_exact() ? elements * size_of(dtype_) : codec_->bytes(elements);
}

void PartWire::encode(ConstData part, std::span<std::byte> payload) const {
  check_sizes(payload.size(), bytes(part.count), part.count);
  if (payload.empty()) return;
  if (is_exact()) {
    std::memcpy(payload.data(), part.bytes, payload.size());
    return;
  }
  Floats workspace;
  for_pieces(part.count, [&](std::size_t first, std::size_t count) {
    const std::span<float> floats = std::span(workspace).first(count);
    widen(piece_of(part, first, count), floats);
    codec_->encode(floats, {}, payload.subspan(bytes(first), bytes(count)), {}, 0);
  });
}

void PartWire::decode(std::span<const std::byte> payload, Data part) const {
  check_sizes(payload.size(), bytes(part.count), part.count);
  if (payload.empty()) return;
  if (is_exact()) {
    std::memcpy(part.bytes, payload.data(), payload.size());
    return;
  }
  Floats workspace;
  for_pieces(part.count, [&](std::size_t first, std::size_t count) {
    const std::span<float> floats = std::span(workspace).first(count);
    codec_->decode(payload.subspan(bytes(first), bytes(count)), floats, 0);
    narrow(floats, piece_of(part, first, count));
  });
}

void PartWire::sum(std::span<const std::span<const std::byte>> payloads, std::size_t own,
                   ConstData own_part, Data out) const {
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    if (i != own) check_sizes(payloads[i].size(), bytes(out.count), out.count);
  }
  Floats workspace;
  Floats more;
  for_pieces(out.count, [&](std::size_t first, std::size_t count) {
    const std::span<float> sums = std::span(workspace).first(count);
    std::ranges::fill(sums, 0.0f);
    for (std::size_t i = 0; i < payloads.size(); ++i) {
      const std::span<float> floats = std::span(more).first(count);
      if (i == own) {
        widen(piece_of(own_part, first, count), floats);
      } else if (is_exact()) {
        widen(ConstData(payloads[i].data() + bytes(first), count, dtype_), floats);
      } else {
        codec_->decode(payloads[i].subspan(bytes(first), bytes(count)), floats, 0);
      }
      for (std::size_t k = 0; k < count; ++k) sums[k] += floats[k];
    }
    narrow(sums, piece_of(out, first, count));
  });
}

}  // namespace lockstep::parallel
