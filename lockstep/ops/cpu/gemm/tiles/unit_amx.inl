// The tiles of AMX (tiles.h). Part of a file of kernels (vector.inl).
#pragma once

#include <immintrin.h>

#include "lockstep/ops/cpu/gemm/tiles/tiles.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

// How large each of the 8 registers is: all have 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Registers 0 to 3 are the square, 4 and 5 of the rows, 6 and 7 of the columns.
struct TileUnit {
  static constexpr std::size_t kTile = 512;  // elements
  static constexpr int kRow = 64;            // bytes

  static void begin() {
    const TileConfig config;
    settle_memory();
    _tile_loadconfig(&config);
  }
  static void end() { _tile_release(); }

  static void clear() {
    settle_memory();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  static void load(const float* square, std::size_t stride) {
    const auto bytes = static_cast<int>(stride * sizeof(float));
    settle_memory();
    _tile_loadd(0, square, bytes);
    _tile_loadd(1, square + 16, bytes);
    _tile_loadd(2, square + 16 * stride, bytes);
    _tile_loadd(3, square + 16 * stride + 16, bytes);
  }
  // A register is loaded again as soon as its last product is on its way: a core that shares itself
  // with another thread has few tiles in flight, and loads that come all at once, before or after
  // the products, hold these up. Measured on a Xeon: 1.08 times as fast with a busy neighbour, the
  // same without.
  template <class AfterStep>
  static void multiply(std::size_t steps, const BFloat16* rows, const BFloat16* columns,
                       AfterStep&& after_step) {
    if (steps == 0) return;
    _tile_loadd(4, rows, kRow);
    _tile_loadd(6, columns, kRow);
    _tile_loadd(5, rows + kTile, kRow);
    _tile_loadd(7, columns + kTile, kRow);
    for (std::size_t step = 0; step + 1 < steps; ++step) {
      rows += 2 * kTile;
      columns += 2 * kTile;
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(2, 5, 6);
      _tile_loadd(6, columns, kRow);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(4, rows, kRow);
      _tile_dpbf16ps(3, 5, 7);
      _tile_loadd(5, rows + kTile, kRow);
      _tile_loadd(7, columns + kTile, kRow);
      after_step(step);
    }
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    after_step(steps - 1);
  }
  static void store(float* square, std::size_t stride) {
    const auto bytes = static_cast<int>(stride * sizeof(float));
    _tile_stored(0, square, bytes);
    _tile_stored(1, square + 16, bytes);
    _tile_stored(2, square + 16 * stride, bytes);
    _tile_stored(3, square + 16 * stride + 16, bytes);
    settle_memory();
  }

 private:
  // The compiler does not know which memory tiles are loaded from and stored to.
  static void settle_memory() { asm volatile("" ::: "memory"); }
};

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
