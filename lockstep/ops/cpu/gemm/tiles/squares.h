// Multiplying and finishing the squares of a tiled product (tiled.h), one after the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/cpu/gemm/aligned.h"
#include "lockstep/ops/cpu/gemm/product.h"
#include "lockstep/ops/cpu/gemm/tiles/tiles.h"
#include "lockstep/ops/cpu/team/team.h"

namespace lockstep::cpu::gemm {

// A panel, and a block of its depth.
struct Stage {
  Range panel;
  Range depth;

  std::size_t steps() const { return (depth.size() + TileKernels::kStep - 1) / TileKernels::kStep; }
  std::size_t strip_size() const {  // elements
    return steps() * TileKernels::kStep * TileKernels::kLines;
  }
};

// Multiplies one square after the other. Each is finished while the next one is multiplied, and on
// the way asks for what the finishing of the square needs.
class Squares {
 public:
  Squares(const TileKernels& kernels, const Product& product) : kernels_(kernels) {
    aside_.square.product = &product;
    aside_.square.finish =
        product.shape.output == DType::kF32 ? kernels.finish_f32 : kernels.finish_bf16;
  }

  // Where a square can be that does not wait: beside the one that is not finished.
  float* free_square() {
    next_ = 1 - next_;
    return memory_[next_];
  }

  // `ahead` of the strips will be needed soon.
  void multiply(const Stage& stage, const BFloat16* row_strip, const BFloat16* column_strip,
                float* square, const Place& place, const Fetch& ahead) {
    const Product& product = *aside_.square.product;
    const bool last = stage.depth.end == product.shape.k;
    aside_.fetch_count = 0;
    if (ahead.count > 0) aside_.fetches[aside_.fetch_count++] = ahead;
    if (last) fetch_outputs(product, place);
    kernels_.multiply(stage.steps(), row_strip, column_strip, square, stage.depth.begin > 0,
                      aside_);
    aside_.square.square = square;
    aside_.square.place = last ? place : Place{};
  }

  void finish_last() {
    const Unfinished& last = aside_.square;
    if (last.place.rows > 0) last.finish(*last.product, last.square, last.place);
    aside_.square.place = {};
  }

 private:
  void fetch_outputs(const Product& product, const Place& place) {
    const Finish& with = product.finish;
    fetch_place(product, product.output, place);
    if (with.added != product.output) fetch_place(product, with.added, place);
    fetch_place(product, with.factor, place);
    fetch_place(product, with.derivative, place);
    fetch_place(product, with.z, place);
  }

  // All rows lie in one line of the cache each where they are that wide and begin with it, else in
  // two.
  void fetch_place(const Product& product, const std::byte* matrix, const Place& place) {
    if (matrix == nullptr) return;
    const std::size_t element = size_of(product.shape.output);
    const std::size_t stride = product.shape.n * element;
    const std::byte* first = matrix + place.row * stride + place.column * element;
    const std::size_t last = place.columns * element - 1;
    const bool is_one_line = last < kAlignment &&
                             reinterpret_cast<std::uintptr_t>(first) % kAlignment == 0 &&
                             stride % kAlignment == 0;
    aside_.fetches[aside_.fetch_count++] = {first, stride, place.rows};
    if (!is_one_line) aside_.fetches[aside_.fetch_count++] = {first + last, stride, place.rows};
  }

  const TileKernels& kernels_;
  Aside aside_;
  std::size_t next_ = 0;
  alignas(kAlignment) float memory_[2][TileKernels::kSquare];
};

}  // namespace lockstep::cpu::gemm
