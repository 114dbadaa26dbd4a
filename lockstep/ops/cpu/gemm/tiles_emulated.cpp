#define LOCKSTEP_ISA scalar
#include <algorithm>

#include "lockstep/ops/cpu/gemm/tiles.inl"

namespace lockstep::cpu::gemm {
namespace {

constexpr std::size_t kSide = 16;
constexpr std::size_t kTile = 2 * kSide * kSide;

// As the instruction does it: the products of even and of odd elements are summed up apart over the
// 16 pairs, then added to each other, then to the sum so far.
void multiply_tiles(const BFloat16* a, const BFloat16* b, float* sums) {
  for (std::size_t i = 0; i < kSide; ++i) {
    for (std::size_t j = 0; j < kSide; ++j) {
      float even = 0;
      float odd = 0;
      for (std::size_t p = 0; p < kSide; ++p) {
        const BFloat16* left = a + (i * kSide + p) * 2;
        const BFloat16* right = b + (p * kSide + j) * 2;
        even += to_float(left[0]) * to_float(right[0]);
        odd += to_float(left[1]) * to_float(right[1]);
      }
      sums[i * TileKernels::kLines + j] += even + odd;
    }
  }
}

struct EmulatedUnit {
  static inline thread_local float sums[TileKernels::kSquare];

  static void begin() {}
  static void end() {}
  static void clear() { std::fill_n(sums, TileKernels::kSquare, 0.0f); }
  static void load(const float* square) { std::copy_n(square, TileKernels::kSquare, sums); }
  static void store(float* square) { std::copy_n(sums, TileKernels::kSquare, square); }

  static void multiply(const BFloat16* rows, const BFloat16* columns) {
    constexpr std::size_t kDown = kSide * TileKernels::kLines;
    multiply_tiles(rows, columns, sums);
    multiply_tiles(rows, columns + kTile, sums + kSide);
    multiply_tiles(rows + kTile, columns, sums + kDown);
    multiply_tiles(rows + kTile, columns + kTile, sums + kDown + kSide);
  }
};

}  // namespace

const TileKernels kEmulatedTiles = scalar::make_tile_kernels<EmulatedUnit>();

}  // namespace lockstep::cpu::gemm
