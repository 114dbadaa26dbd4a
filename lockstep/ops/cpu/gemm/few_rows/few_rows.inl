// The kernels of the product of few rows. Part of a file of kernels (vector.inl).
//
// Lines are taken one after the other, so that the matrix is one stream, which the CPU fetches
// ahead by itself; several lines at a time were slower wherever we measured. A sum has kTurns
// partial sums, and vector i of a line goes to the one whose turn it is, i % kTurns.
#pragma once

#include "lockstep/base/simd/vector.inl"
#include "lockstep/base/system/cache_lines.h"
#include "lockstep/ops/cpu/gemm/few_rows/kernels.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

constexpr std::size_t kTurns = 4;

// Prefetches the lines one page behind the next kTurns vectors. A Xeon's hardware prefetcher stops
// at a page boundary, so it reads half as fast again with this. A Neoverse N1's continues across
// pages, and was slower with it.
template <class T>
[[gnu::always_inline]] inline void prefetch_later([[maybe_unused]] const T* now) {
#if defined(__x86_64__)
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kLine = 64;
  const auto* later = reinterpret_cast<const std::byte*>(now) + kPage;
#pragma GCC unroll 4
  for (std::size_t at = 0; at < kTurns * kLanes * sizeof(T); at += kLine) {
    prefetch_to_read(later + at);
  }
#endif
}

// sums[row][turn] += the vector of a row's elements times that of the line's, for all rows.
template <std::size_t rows, class Count>
[[gnu::always_inline]] inline void add_products(const float* x, std::size_t stride, Floats line,
                                                std::size_t turn, Count count,
                                                Floats (&sums)[rows][kTurns]) {
#pragma GCC unroll 4
  for (std::size_t i = 0; i < rows; ++i) {
    sums[i][turn] = fused(load_some(x + i * stride, count), line, sums[i][turn]);
  }
}

template <std::size_t rows, class T>
[[gnu::always_inline]] inline void multiply_line(const float* x, std::size_t stride, const T* line,
                                                 std::size_t k, Floats (&sums)[rows][kTurns]) {
  constexpr std::integral_constant<std::size_t, kLanes> kWhole;
  std::size_t p = 0;
  for (; p + kTurns * kLanes <= k; p += kTurns * kLanes) {
    prefetch_later(line + p);
#pragma GCC unroll 4
    for (std::size_t turn = 0; turn < kTurns; turn += 2) {
      const std::size_t at = p + turn * kLanes;
      Floats two[2];
      load_two(line + at, two);
      add_products(x + at, stride, two[0], turn, kWhole, sums);
      add_products(x + at + kLanes, stride, two[1], turn + 1, kWhole, sums);
    }
  }
#pragma GCC unroll 4
  for (std::size_t turn = 0; turn < kTurns; ++turn, p += kLanes) {
    if (p >= k) return;
    const std::size_t count = k - p < kLanes ? k - p : kLanes;
    add_products(x + p, stride, load_some(line + p, count), turn, count, sums);
  }
}

template <std::size_t rows, class T>
void multiply_lines(const FewRows& work, std::size_t row) {
  const T* line = reinterpret_cast<const T*>(work.matrix);
  const float* x = work.x + row * work.stride;
  float* to = work.sums + row * work.sums_stride;
  for (std::size_t j = 0; j < work.lines; ++j, line += work.k) {
    Floats sums[rows][kTurns] = {};
    multiply_line<rows>(x, work.stride, line, work.k, sums);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < rows; ++i) {
      to[i * work.sums_stride + j] =
          sum_of_lanes((sums[i][0] + sums[i][1]) + (sums[i][2] + sums[i][3]));
    }
  }
}

// Four rows at a time are what the registers hold; lines are in the first cache for the next four.
template <class T>
void multiply_few_rows(const FewRows& work) {
  std::size_t row = 0;
  for (; row + 4 <= work.rows; row += 4) multiply_lines<4, T>(work, row);
  switch (work.rows - row) {
    case 3:
      return multiply_lines<3, T>(work, row);
    case 2:
      return multiply_lines<2, T>(work, row);
    case 1:
      return multiply_lines<1, T>(work, row);
    default:
      return;
  }
}

template <class T>
void widen_row(const std::byte* from, std::size_t count, float* to) {
  for_vectors(count, [&](std::size_t i, auto part) {
    store_some(to + i, load_some(reinterpret_cast<const T*>(from) + i, part), part);
  });
}

}  // namespace

const FewRowsKernels few_rows_kernels = {
    .multiply = {multiply_few_rows<float>, multiply_few_rows<BFloat16>, multiply_few_rows<Half>},
    .widen = {widen_row<float>, widen_row<BFloat16>, widen_row<Half>}};

}  // namespace lockstep::cpu::LOCKSTEP_ISA
