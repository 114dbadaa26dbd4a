#include "lockstep/parallel/zero/part_wire.h"

#include "lockstep/base/error.h"
#include "lockstep/parallel/compression/dense_codecs.h"
#include "lockstep/tensor/device_memory.h"

namespace lockstep::parallel {
namespace {

std::optional<Compression> format_of(Quantization quantization) {
  switch (quantization) {
    case Quantization::kNone:
      return std::nullopt;
    case Quantization::kInt8:
      return Compression::kInt8;
    case Quantization::kInt4:
      return Compression::kInt4;
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

PartWire::PartWire(Quantization quantization, DType dtype, CodecDevice& device)
    : dtype_(dtype), format_(format_of(quantization)), device_(device) {}

std::size_t PartWire::bytes(std::size_t elements) const {
  return is_exact() ? elements * size_of(dtype_) : BlockCodec(*format_).bytes(elements);
}

void PartWire::encode(ConstData part, std::span<std::byte> payload) const {
  check_sizes(payload.size(), bytes(part.count), part.count);
  if (payload.empty()) return;
  device_.run([&] {
    if (!is_exact()) return device_.encode_part(*format_, part, payload);
    memory_of(device_.device()).copy(payload.data(), part.bytes, payload.size());
  });
}

void PartWire::decode(std::span<const std::byte> payload, Data part) const {
  check_sizes(payload.size(), bytes(part.count), part.count);
  if (payload.empty()) return;
  device_.run([&] {
    if (!is_exact()) return device_.decode_part(*format_, payload, part);
    memory_of(device_.device()).copy(part.bytes, payload.data(), payload.size());
  });
}

void PartWire::sum(std::span<const std::byte> payloads, std::size_t own, ConstData own_part,
                   Data out) const {
  if (is_exact()) fail(ErrorCode::kInvalidArgument, "shards that are sent as they are need no sum");
  if (out.count == 0) return;
  const std::size_t each = bytes(out.count);
  check_sizes(payloads.size(), payloads.size() / each * each, out.count);
  device_.run([&] {
    device_.sum_parts(*format_,
                      {.payloads = payloads, .own = own, .own_part = own_part, .out = out});
  });
}

}  // namespace lockstep::parallel
