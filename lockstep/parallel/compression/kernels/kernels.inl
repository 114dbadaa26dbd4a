// The kernels (kernels.h), compiled once per instruction set (base/simd/kernel_table.h).
//
// Everything here has internal linkage and uses no function of the standard library, for the reason
// that base/simd/vector.inl gives.
#pragma once

#include "lockstep/parallel/compression/kernels/formats.inl"

namespace lockstep::parallel::LOCKSTEP_ISA {
namespace {

// One block through a copy that stays in the first-level cache.
template <class Format, bool kFeedback>
inline __attribute__((always_inline)) void encode_block(const float* values, float* residual,
                                                        std::byte* payload, std::size_t count) {
  float x[kBlock] = {};
  for (std::size_t i = 0; i < count; ++i) x[i] = values[i];
  if constexpr (kFeedback) {
    for (std::size_t i = 0; i < count; ++i) x[i] += residual[i];
  }
  Format::encode(x, count, payload);
  if constexpr (kFeedback) {
    for (std::size_t i = 0; i < count; ++i) residual[i] = finite_or_zero(x[i]);
  }
}

template <class Format, bool kFeedback>
void encode_blocks(const float* values, float* residual, std::byte* payload, std::size_t elements) {
  std::size_t done = 0;
  for (; done + kBlock <= elements; done += kBlock) {
    encode_block<Format, kFeedback>(values + done, kFeedback ? residual + done : nullptr, payload,
                                    kBlock);
    payload += Format::bytes(kBlock);
  }
  const std::size_t rest = elements - done;
  if (rest == 0) return;
  std::byte whole[Format::bytes(kBlock)];
  encode_block<Format, kFeedback>(values + done, kFeedback ? residual + done : nullptr, whole,
                                  rest);
  __builtin_memcpy(payload, whole, Format::bytes(rest));
}

template <class Format>
void encode(const float* values, float* residual, std::byte* payload, std::size_t elements) {
  if (residual == nullptr) return encode_blocks<Format, false>(values, residual, payload, elements);
  encode_blocks<Format, true>(values, residual, payload, elements);
}

template <class Format, bool kAdd>
inline __attribute__((always_inline)) void decode_block(const std::byte* payload, float* out,
                                                        std::size_t count) {
  float x[kBlock];
  Format::decode(payload, x);
  for (std::size_t i = 0; i < count; ++i) out[i] = kAdd ? out[i] + x[i] : x[i];
}

template <class Format, bool kAdd>
void decode_blocks(const std::byte* payload, float* out, std::size_t elements) {
  std::size_t done = 0;
  for (; done + kBlock <= elements; done += kBlock) {
    decode_block<Format, kAdd>(payload, out + done, kBlock);
    payload += Format::bytes(kBlock);
  }
  const std::size_t rest = elements - done;
  if (rest == 0) return;
  std::byte whole[Format::bytes(kBlock)] = {};
  __builtin_memcpy(whole, payload, Format::bytes(rest));
  decode_block<Format, kAdd>(whole, out + done, rest);
}

template <class Format>
void decode(const std::byte* payload, float* out, std::size_t elements, bool add) {
  if (add) return decode_blocks<Format, true>(payload, out, elements);
  decode_blocks<Format, false>(payload, out, elements);
}

Magnitude add(const float* values, float* residual, std::size_t elements) {
  Magnitude largest = 0;
  if (residual == nullptr) {
    for (std::size_t i = 0; i < elements; ++i) {
      const Magnitude here = magnitude_of(values[i]);
      largest = here > largest ? here : largest;
    }
    return largest;
  }
  for (std::size_t i = 0; i < elements; ++i) {
    residual[i] += values[i];
    const Magnitude here = magnitude_of(residual[i]);
    largest = here > largest ? here : largest;
  }
  return largest;
}

// A run of up to kRun elements. A bit for each says whether it is a candidate; few are.
template <bool kFeedback>
inline __attribute__((always_inline)) void collect_run(const float* values, float* residual,
                                                       std::size_t first, std::size_t count,
                                                       Magnitude threshold, Candidates& candidates,
                                                       Magnitude& largest) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float x = values[first + i];
    if constexpr (kFeedback) residual[first + i] = x += residual[first + i];
    bits |= choose(magnitude_of(x) > threshold, std::uint32_t{1} << i, 0);
  }
  const float* sums = kFeedback ? residual : values;
  for (; bits != 0; bits &= bits - 1) {
    const std::size_t at = first + static_cast<std::size_t>(__builtin_ctz(bits));
    const Magnitude magnitude = magnitude_of(sums[at]);
    candidates.positions[candidates.count] = static_cast<std::uint32_t>(at);
    candidates.magnitudes[candidates.count] = magnitude;
    ++candidates.count;
    largest = magnitude > largest ? magnitude : largest;
  }
}

template <bool kFeedback>
std::size_t collect_runs(const float* values, float* residual, std::size_t first,
                         std::size_t elements, Magnitude threshold, Candidates& candidates,
                         Magnitude& largest) {
  Candidates found = candidates;
  Magnitude most = largest;
  for (; first + kRun <= elements && found.count + kRun <= found.capacity; first += kRun) {
    collect_run<kFeedback>(values, residual, first, kRun, threshold, found, most);
  }
  if (first < elements && first + kRun > elements && found.count + kRun <= found.capacity) {
    collect_run<kFeedback>(values, residual, first, elements - first, threshold, found, most);
    first = elements;
  }
  candidates = found;
  largest = most;
  return first;
}

std::size_t collect(const float* values, float* residual, std::size_t first, std::size_t elements,
                    Magnitude threshold, Candidates& candidates, Magnitude& largest) {
  if (residual == nullptr) {
    return collect_runs<false>(values, residual, first, elements, threshold, candidates, largest);
  }
  return collect_runs<true>(values, residual, first, elements, threshold, candidates, largest);
}

void widen_halves(const std::byte* halves, float* out, std::size_t elements) {
  const Stored16* words = reinterpret_cast<const Stored16*>(halves);
  for (std::size_t i = 0; i < elements; ++i) out[i] = float_of_half(words[i]);
}

void narrow_to_halves(const float* values, std::byte* halves, std::size_t elements) {
  Stored16* words = reinterpret_cast<Stored16*>(halves);
  std::size_t done = 0;
  for (; done + kBlock <= elements; done += kBlock)
    to_halves<kBlock>(values + done, 1, words + done);
  for (; done < elements; ++done) words[done] = half_of(values[done]);
}

void average(const float* values, float* averages, float keep, float take, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) {
    averages[i] = keep * averages[i] + take * values[i];
  }
}

double squares(const float* values, std::size_t elements) {
  constexpr std::size_t kLanes = 16;
  double sums[kLanes] = {};
  const auto add_run = [&](std::size_t first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const double x = static_cast<double>(values[first + i]);
      sums[i] += x * x;
    }
  };
  std::size_t done = 0;
  for (; done + kLanes <= elements; done += kLanes) add_run(done, kLanes);
  add_run(done, elements - done);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

void clear_non_finite(float* values, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) values[i] = finite_or_zero(values[i]);
}

}  // namespace

constinit const CompressionKernels compression_kernels = {
    .bf16 = {encode<Bf16>, decode<Bf16>},
    .f16 = {encode<F16>, decode<F16>},
    .int8 = {encode<Int8>, decode<Int8>},
    .int4 = {encode<Int4>, decode<Int4>},
    .onebit = {encode<Onebit>, decode<Onebit>},
    .add = add,
    .collect = collect,
    .widen_halves = widen_halves,
    .narrow_to_halves = narrow_to_halves,
    .average = average,
    .squares = squares,
    .clear_non_finite = clear_non_finite,
};

}  // namespace lockstep::parallel::LOCKSTEP_ISA
