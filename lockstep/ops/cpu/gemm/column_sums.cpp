#include "lockstep/ops/cpu/gemm/column_sums.h"

#include <algorithm>

#include "lockstep/ops/cpu/gemm/kernels.h"
#include "lockstep/ops/element.h"

namespace lockstep::cpu::gemm {
namespace {

// Columns that are summed at a time, and the grain in which threads share them: no two write to
// the same line of the cache.
constexpr std::size_t kColumns = 512;
constexpr std::size_t kGrain = 32;

template <class T>
void add_rounded(const float* sums, std::size_t count, T* to) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = ops::rounded<T>(ops::to_double(to[i]) + static_cast<double>(sums[i]));
  }
}

}  // namespace

void add_column_sums(const Cpu& cpu, const Tensor& matrix, std::int64_t first, const Tensor& sums) {
  const auto rows = static_cast<std::size_t>(matrix.shape()[0]);
  const auto stride = static_cast<std::size_t>(matrix.shape()[1]);
  const std::byte* data = matrix.data() + static_cast<std::size_t>(first) * size_of(matrix.dtype());
  const TypeKernels& kernels = product_kernels(cpu.isa).of(matrix.dtype());
  cpu.team.run([&](int thread) {
    const Range mine = share(sums.elements(), cpu.team.size(), thread, kGrain);
    for (std::size_t column = mine.begin; column < mine.end; column += kColumns) {
      const std::size_t count = std::min(kColumns, mine.end - column);
      float some[kColumns] = {};
      kernels.add_column_sums(data + column * size_of(matrix.dtype()), rows, stride, count, some);
      ops::with_float_type(sums.dtype(), [&]<class T>(T) {
        add_rounded(some, count, reinterpret_cast<T*>(sums.data()) + column);
      });
    }
  });
}

}  // namespace lockstep::cpu::gemm
