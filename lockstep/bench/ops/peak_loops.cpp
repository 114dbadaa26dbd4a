#include "lockstep/bench/ops/peak_loops.h"

#include <iterator>

#include "lockstep/base/system/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace lockstep::bench {
namespace {

// Sums that do not wait for each other (and begin apart, or one would do for all), as many as are
// enough to keep two pipes of four cycles busy.
constexpr int kSums = 12;

// Uses the sums, so that nothing that leads to them is left out. All loops over them are unrolled,
// for what is reached by an index lies in memory all the time.
template <class T>
[[gnu::always_inline]] inline void use(const T (&sums)[kSums]) {
  T total = sums[0];
#pragma GCC unroll 12
  for (int i = 1; i < kSums; ++i) total += sums[i];
  asm volatile("" : : "r"(&total) : "memory");
}

constexpr double flops_of(int lanes) { return 2.0 * lanes * kSums; }

#if defined(__x86_64__)

__attribute__((target("avx2,fma"))) void avx2_fma(long rounds) {
  __m256 sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(1.0001f), b = _mm256_set1_ps(0.5f);
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = _mm256_fmadd_ps(sum, b, a);
  }
  use(sums);
}

__attribute__((target("avx512f"))) void avx512_fma(long rounds) {
  __m512 sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(1.0001f), b = _mm512_set1_ps(0.5f);
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = _mm512_fmadd_ps(sum, b, a);
  }
  use(sums);
}

__attribute__((target("avx512f,avx512bf16"))) void avx512_bf16(long rounds) {
  __m512 sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = (__m512bh)_mm512_set1_epi16(0x3a00);
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = _mm512_dpbf16_ps(sum, a, b);
  }
  use(sums);
}

// Tiles of 16 rows of 64 bytes: four of sums, two of each factor.
struct TileConfig {
  unsigned char palette = 1;
  unsigned char start_row = 0;
  unsigned char reserved[14] = {};
  unsigned short columns[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr double kTileFlops = 4 * 2.0 * 16 * 16 * 32;

// Zeros would be multiplied faster than anything that is worth multiplying.
struct alignas(64) TileOfNumbers {
  unsigned short bf16[16 * 32];
  TileOfNumbers() {
    constexpr unsigned kOne = 0x3f80, kSignAndFraction = 0x807f;
    for (unsigned i = 0; i < std::size(bf16); ++i) {
      bf16[i] = static_cast<unsigned short>(kOne | (i * 40503 & kSignAndFraction));
    }
  }
};

__attribute__((target("amx-tile,amx-bf16"))) void amx_bf16(long rounds) {
  const TileConfig config;
  const TileOfNumbers numbers;
  asm volatile("" ::: "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, &numbers, 64);
  _tile_loadd(5, &numbers, 64);
  _tile_loadd(6, &numbers, 64);
  _tile_loadd(7, &numbers, 64);
  for (long round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

PeakLoop fastest(DType dtype) {
  const CpuFeatures& cpu = cpu_features();
  if (dtype == DType::kBF16) {
    if (cpu.amx_bf16) return {"amx bf16", amx_bf16, kTileFlops};
    if (cpu.avx512_bf16) return {"avx512 bf16", avx512_bf16, 2 * flops_of(16)};
  }
  if (cpu.avx512) return {"avx512 fma", avx512_fma, flops_of(16)};
  if (cpu.avx2) return {"avx2 fma", avx2_fma, flops_of(8)};
  return {};
}

#elif defined(__aarch64__)

void neon_fma(long rounds) {
  float32x4_t sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = vdupq_n_f32(static_cast<float>(i));
  const float32x4_t a = vdupq_n_f32(1.0001f), b = vdupq_n_f32(1e-6f);
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = vfmaq_f32(sum, a, b);
  }
  use(sums);
}

__attribute__((target("arch=armv8.2-a+fp16+bf16"))) void neon_bf16(long rounds) {
  float32x4_t sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = vdupq_n_f32(static_cast<float>(i));
  const bfloat16x8_t a = vreinterpretq_bf16_u16(vdupq_n_u16(0x3f80)),
                     b = vreinterpretq_bf16_u16(vdupq_n_u16(0x3400));
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = vbfmmlaq_f32(sum, a, b);
  }
  use(sums);
}

PeakLoop fastest(DType dtype) {
  if (dtype == DType::kBF16 && cpu_features().neon_bf16) {
    return {"neon bf16", neon_bf16, 4 * flops_of(4)};
  }
  return {"neon fma", neon_fma, flops_of(4)};
}

#else

PeakLoop fastest(DType) { return {}; }

#endif

void scalar(long rounds) {
  float sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = static_cast<float>(i);
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = sum * 0.5f + 1.0001f;
  }
  use(sums);
}

}  // namespace

PeakLoop peak_loop(DType dtype) {
  const PeakLoop loop = fastest(dtype);
  return loop.run != nullptr ? loop : PeakLoop{"scalar", scalar, flops_of(1)};
}

}  // namespace lockstep::bench
