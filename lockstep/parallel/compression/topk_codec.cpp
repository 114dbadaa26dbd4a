#include "lockstep/parallel/compression/topk_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/math/half.h"
#include "lockstep/parallel/compression/largest.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kSegment = 65536;

std::size_t segments_of(std::size_t elements) { return (elements + kSegment - 1) / kSegment; }

template <class T>
T load_at(const std::byte* array, std::size_t index) {
  T value;
  std::memcpy(&value, array + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void store_at(std::byte* array, std::size_t index, T value) {
  std::memcpy(array + index * sizeof(T), &value, sizeof(T));
}

// Where the parts of a payload begin.
template <class Byte>
struct Parts {
  Byte* counts;     // of 32 bits
  Byte* positions;  // of 16 bits
  Byte* values;     // BFloat16
};

template <class Byte>
Parts<Byte> parts_of(Byte* payload, std::size_t elements, std::size_t kept) {
  Byte* positions = payload + segments_of(elements) * sizeof(std::uint32_t);
  return {payload, positions, positions + kept * sizeof(std::uint16_t)};
}

[[noreturn]] void refuse(std::size_t segment, std::string_view why) {
  fail(ErrorCode::kProtocol,
       "topk: segment {} of a payload {}; it was damaged on its way, or something else wrote it",
       segment, why);
}

void check_parts(const Parts<const std::byte>& parts, std::size_t elements, std::size_t kept) {
  std::size_t index = 0;
  for (std::size_t s = 0; s < segments_of(elements); ++s) {
    const auto count = load_at<std::uint32_t>(parts.counts, s);
    if (count > kept - index) refuse(s, "has more elements than are left");
    const std::size_t size = std::min(elements - s * kSegment, kSegment);
    std::size_t least = 0;
    for (const std::size_t end = index + count; index < end; ++index) {
      const auto position = load_at<std::uint16_t>(parts.positions, index);
      if (position >= size) refuse(s, "has a position outside of it");
      if (position < least) refuse(s, "has positions that do not rise");
      least = position + std::size_t{1};
    }
  }
  if (index != kept) refuse(segments_of(elements) - 1, "ends before the last element");
}

// f(position, value) for each element that was sent.
template <class F>
void for_sent(const Parts<const std::byte>& parts, std::size_t elements, F&& f) {
  std::size_t index = 0;
  for (std::size_t s = 0; s < segments_of(elements); ++s) {
    for (std::size_t end = index + load_at<std::uint32_t>(parts.counts, s); index < end; ++index) {
      f(s * kSegment + load_at<std::uint16_t>(parts.positions, index),
        to_float(load_at<BFloat16>(parts.values, index)));
    }
  }
}

}  // namespace

TopkCodec::TopkCodec(double ratio) : ratio_(checked_ratio(ratio, TopkCodec::name())) {}

std::size_t TopkCodec::bytes(std::size_t elements) const {
  return segments_of(elements) * sizeof(std::uint32_t) +
         kept_elements(elements, ratio_) * (sizeof(std::uint16_t) + sizeof(BFloat16));
}

std::size_t TopkCodec::scratch_bytes(std::size_t elements) const {
  return largest_scratch_bytes(elements, kept_elements(elements, ratio_));
}

void TopkCodec::encode_checked(std::span<const float> values, float* residual, std::byte* payload,
                               std::byte* scratch, std::uint64_t) const {
  check_positions(values.size(), name());
  const std::size_t kept = kept_elements(values.size(), ratio_);
  const Largest largest = find_largest(values, residual, kept, scratch);
  const float* sums = residual != nullptr ? residual : values.data();
  const auto parts = parts_of(payload, values.size(), kept);
  std::memset(parts.counts, 0, segments_of(values.size()) * sizeof(std::uint32_t));
  for (std::size_t i = 0; i < kept; ++i) {
    const std::uint32_t position = largest.positions[i];
    const std::size_t segment = position / kSegment;
    store_at(parts.counts, segment, load_at<std::uint32_t>(parts.counts, segment) + 1);
    store_at(parts.positions, i, static_cast<std::uint16_t>(position % kSegment));
    const float sum = sums[position];
    const BFloat16 value = to_bfloat16(sum);
    store_at(parts.values, i, value);
    if (residual == nullptr) continue;
    const float rest = sum - to_float(value);
    residual[position] = std::isfinite(rest) ? rest : 0;
  }
  if (residual != nullptr && !largest.all_finite) {
    compression_kernels().clear_non_finite(residual, values.size());
  }
}

void TopkCodec::decode_checked(const std::byte* payload, std::span<float> out, bool add,
                               std::uint64_t) const {
  const std::size_t kept = kept_elements(out.size(), ratio_);
  const auto parts = parts_of(payload, out.size(), kept);
  check_parts(parts, out.size(), kept);
  if (!add) std::fill(out.begin(), out.end(), 0.0f);
  for_sent(parts, out.size(), [&](std::size_t position, float value) { out[position] += value; });
}

void TopkCodec::clear_sent_checked(const std::byte* payload, std::span<float> values,
                                   std::uint64_t) const {
  const std::size_t kept = kept_elements(values.size(), ratio_);
  const auto parts = parts_of(payload, values.size(), kept);
  check_parts(parts, values.size(), kept);
  bool all_finite = true;
  for_sent(parts, values.size(), [&](std::size_t position, float value) {
    values[position] = 0;
    all_finite = all_finite && std::isfinite(value);
  });
  if (!all_finite) compression_kernels().clear_non_finite(values.data(), values.size());
}

}  // namespace lockstep::parallel
