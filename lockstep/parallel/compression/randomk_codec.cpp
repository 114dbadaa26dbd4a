#include "lockstep/parallel/compression/randomk_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/parallel/compression/kernels/kernels.h"

namespace lockstep::parallel {
namespace {

// f(index, position) for the position drawn from each stratum, rising.
template <class F>
void for_drawn(std::uint64_t elements, std::uint64_t kept, std::uint64_t seed, F&& f) {
  std::uint64_t begin = 0;
  RandomWords words{};
  for (std::uint64_t stratum = 0; stratum < kept; ++stratum) {
    if (stratum % 4 == 0) words = random_block(seed, 0, stratum / 4);
    const std::uint64_t end = (stratum + 1) * elements / kept;
    f(stratum, begin + (words[stratum % 4] * (end - begin) >> 32));
    begin = end;
  }
}

}  // namespace

RandomkCodec::RandomkCodec(double ratio) : ratio_(checked_ratio(ratio, RandomkCodec::name())) {}

std::size_t RandomkCodec::bytes(std::size_t elements) const {
  return kept_elements(elements, ratio_) * sizeof(float);
}

void RandomkCodec::encode_checked(std::span<const float> values, float* residual,
                                  std::byte* payload, std::byte*, std::uint64_t seed) const {
  check_positions(values.size(), name());
  const std::size_t kept = kept_elements(values.size(), ratio_);
  const bool all_finite =
      compression_kernels().add(values.data(), residual, values.size()) < kInfiniteMagnitude;
  const float* sums = residual != nullptr ? residual : values.data();
  for_drawn(values.size(), kept, seed, [&](std::size_t index, std::size_t position) {
    const float sent = all_finite ? sums[position] : std::numeric_limits<float>::quiet_NaN();
    std::memcpy(payload + index * sizeof(float), &sent, sizeof(float));
    if (residual != nullptr) residual[position] = 0;
  });
  if (residual != nullptr && !all_finite) {
    compression_kernels().clear_non_finite(residual, values.size());
  }
}

void RandomkCodec::decode_checked(const std::byte* payload, std::span<float> out, bool add,
                                  std::uint64_t seed) const {
  check_positions(out.size(), name());
  if (!add) std::fill(out.begin(), out.end(), 0.0f);
  for_drawn(out.size(), kept_elements(out.size(), ratio_), seed,
            [&](std::size_t index, std::size_t position) {
              float sent;
              std::memcpy(&sent, payload + index * sizeof(float), sizeof(float));
              out[position] += sent;
            });
}

void RandomkCodec::clear_sent_checked(const std::byte* payload, std::span<float> values,
                                      std::uint64_t seed) const {
  bool all_finite = true;
  for_drawn(values.size(), kept_elements(values.size(), ratio_), seed,
            [&](std::size_t index, std::size_t position) {
              float sent;
              std::memcpy(&sent, payload + index * sizeof(float), sizeof(float));
              all_finite = all_finite && std::isfinite(sent);
              values[position] = 0;
            });
  if (!all_finite) compression_kernels().clear_non_finite(values.data(), values.size());
}

}  // namespace lockstep::parallel
