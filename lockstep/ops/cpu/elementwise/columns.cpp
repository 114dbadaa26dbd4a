// Columns of rows, and the merging of attention, which is a weighted sum of such columns. Numbers
// of 16 bits go through a few floats on the stack.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "lockstep/ops/check.h"
#include "lockstep/ops/cpu/elementwise/elementwise.h"
#include "lockstep/ops/cpu/elementwise/kernels.h"
#include "lockstep/ops/cpu/team/split.h"

namespace lockstep::cpu {
namespace {

constexpr std::size_t kFloats = 512;
using Floats = std::array<float, kFloats>;

std::byte* column(const Tensor& rows, std::size_t row, std::size_t first) {
  const auto width = static_cast<std::size_t>(rows.shape()[1]);
  return rows.data() + (row * width + first) * size_of(rows.dtype());
}

// f(first, count) for parts of columns that fit on the stack.
template <class F>
void in_parts(std::size_t columns, F&& f) {
  for (std::size_t first = 0; first < columns; first += kFloats) {
    f(first, std::min(kFloats, columns - first));
  }
}

}  // namespace

void run(const Cpu& cpu, const ops::CopyColumns& call) {
  ops::check(call);
  const ElementwiseKernels& kernels = elementwise_kernels(cpu.isa);
  const Tensor& from = call.from.rows;
  const Tensor& to = call.to.rows;
  const auto columns = static_cast<std::size_t>(call.columns);
  const auto from_first = static_cast<std::size_t>(call.from.first);
  const auto to_first = static_cast<std::size_t>(call.to.first);
  const auto cast = kernels.cast[from.dtype()][to.dtype()];
  const auto widen = kernels.cast[from.dtype()][DType::kF32];
  const auto widen_sum = kernels.cast[to.dtype()][DType::kF32];
  const auto narrow = kernels.cast[DType::kF32][to.dtype()];
  const auto add = kernels.add[DType::kF32];
  const auto rows = static_cast<std::size_t>(from.shape()[0]);
  const std::size_t bytes = rows * columns * (size_of(from.dtype()) + 2 * size_of(to.dtype()));
  split(cpu.team, rows, 1, bytes, [&](Range range) {
    Floats x, sum;
    for (std::size_t row = range.begin; row < range.end; ++row) {
      if (!call.accumulate) {
        cast(column(from, row, from_first), column(to, row, to_first), columns);
        continue;
      }
      in_parts(columns, [&](std::size_t first, std::size_t count) {
        std::byte* const target = column(to, row, to_first + first);
        widen(column(from, row, from_first + first), x.data(), count);
        widen_sum(target, sum.data(), count);
        add(sum.data(), x.data(), sum.data(), count);
        narrow(sum.data(), target, count);
      });
    }
  });
}

void run(const Cpu& cpu, const ops::MergeAttention& call) {
  ops::check(call);
  const auto queries = static_cast<std::size_t>(call.more.shape()[0]);
  const auto heads = static_cast<std::size_t>(call.heads);
  const auto head_size = static_cast<std::size_t>(call.more.shape()[1]) / heads;
  const auto widen = elementwise_kernels(cpu.isa).cast[call.more.dtype()][DType::kF32];
  float* const log_sums = call.log_sum.as<float>().data();
  const float* const more_log_sums = call.more_log_sum.as<const float>().data();
  const std::size_t bytes = call.more.bytes() + 2 * call.out.bytes();
  split(cpu.team, queries, 1, bytes, [&](Range range) {
    Floats more;
    for (std::size_t query = range.begin; query < range.end; ++query) {
      for (std::size_t head = 0; head < heads; ++head) {
        float& log_sum = log_sums[head * queries + query];
        const float added = more_log_sums[head * queries + query];
        if (added == -std::numeric_limits<float>::infinity()) continue;
        const float most = std::max(log_sum, added);
        const float total = most + std::log(std::exp(log_sum - most) + std::exp(added - most));
        const float keeps = std::exp(log_sum - total);
        const float takes = std::exp(added - total);
        log_sum = total;
        in_parts(head_size, [&](std::size_t first, std::size_t count) {
          const std::size_t at = head * head_size + first;
          widen(column(call.more, query, at), more.data(), count);
          auto* const out = reinterpret_cast<float*>(column(call.out, query, at));
          for (std::size_t i = 0; i < count; ++i) {
            out[i] = (keeps > 0 ? keeps * out[i] : 0) + takes * more[i];
          }
        });
      }
    }
  });
}

}  // namespace lockstep::cpu
