#include "lockstep/ops/cpu/gemm/few_rows/few_rows.h"

#include <algorithm>

#include "lockstep/ops/cpu/gemm/aligned.h"
#include "lockstep/ops/cpu/gemm/few_rows/kernels.h"
#include "lockstep/ops/cpu/gemm/kernels.h"
#include "lockstep/ops/cpu/team/split.h"

namespace lockstep::cpu::gemm {
namespace {

// Outputs that threads do not cut: few, so that shares of many threads are about equal.
constexpr std::size_t kGrain = 8;

class FewRowsProduct final : public Implementation {
 public:
  explicit FewRowsProduct(const Cpu& cpu) : cpu_(cpu) {}

  bool accepts(const ProductShape& shape) override {
    return shape.m >= 1 && shape.m <= kFewRows && !shape.a_transposed && shape.b_transposed &&
           shape.output == shape.dtype;
  }

  std::string name(const ProductShape&) override {
    return "few rows, " + std::string(lockstep::name(base_isa(cpu_.isa)));
  }

  std::size_t scratch(const ProductShape& shape) override {
    return static_cast<std::size_t>(cpu_.team.size()) * floats(shape) * sizeof(float) + kAlignment -
           1;
  }

  // Every thread widens x for itself: it is small, and waiting for another to do it takes longer.
  void run(const Product& product, std::byte* scratch) override {
    const ProductShape& shape = product.shape;
    const Kernels& finishing = product_kernels(cpu_.isa);
    auto* memory = reinterpret_cast<float*>(aligned(scratch));
    const int threads = cpu_.team.size();
    const auto work_of = [&](int thread, const Range& lines) {
      if (lines.size() == 0) return;
      float* x = memory + static_cast<std::size_t>(thread) * floats(shape);
      few_rows_kernels(cpu_.isa).widen[shape.dtype](product.a, shape.m * shape.k, x);
      run_lines(product, finishing, x, lines);
    };
    if (shape.n * shape.k * size_of(shape.dtype) < kBytesWorthSplitting) {
      return work_of(0, {0, shape.n});
    }
    cpu_.team.run([&](int thread) { work_of(thread, share(shape.n, threads, thread, kGrain)); });
  }

 private:
  static std::size_t floats(const ProductShape& shape) {
    constexpr std::size_t kLine = kAlignment / sizeof(float);
    return (shape.m * shape.k + kLine - 1) / kLine * kLine;
  }

  void run_lines(const Product& product, const Kernels& finishing, const float* x,
                 const Range& lines) const {
    const ProductShape& shape = product.shape;
    const auto multiply = few_rows_kernels(cpu_.isa).multiply[shape.dtype];
    alignas(kAlignment) float tile[Kernels::kMostTile];
    for (std::size_t line = lines.begin; line < lines.end; line += finishing.columns) {
      const std::size_t count = std::min(finishing.columns, lines.end - line);
      multiply({.x = x,
                .rows = shape.m,
                .stride = shape.k,
                .matrix = product.b + line * shape.k * size_of(shape.dtype),
                .lines = count,
                .k = shape.k,
                .sums = tile,
                .sums_stride = finishing.columns});
      finishing.of(shape.output)
          .finish(product, tile, {.row = 0, .column = line, .rows = shape.m, .columns = count});
    }
  }

  Cpu cpu_;
};

}  // namespace

std::unique_ptr<Implementation> make_few_rows(const Cpu& cpu) {
  return std::make_unique<FewRowsProduct>(cpu);
}

}  // namespace lockstep::cpu::gemm
