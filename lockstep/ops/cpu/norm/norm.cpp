#include "lockstep/ops/cpu/norm/norm.h"

#include <algorithm>

#include "lockstep/ops/check.h"
#include "lockstep/ops/cpu/norm/kernels.h"
#include "lockstep/ops/cpu/team/split.h"

namespace lockstep::cpu {
namespace {

const void* data_or_null(const Tensor& tensor) {
  return ops::is_given(tensor) ? tensor.data() : nullptr;
}
float* statistic(const Tensor& tensor) {
  return ops::is_given(tensor) ? tensor.as<float>().data() : nullptr;
}

// Backward sums the gradients of gain and bias up in blocks of rows: each block on its own, then
// the blocks in order. The blocks follow from the number of rows alone, so that the sums do not
// depend on the number of threads.
struct Blocks {
  static constexpr std::size_t kMost = 64;
  static constexpr std::size_t kLeastRows = 16;

  explicit Blocks(std::size_t rows)
      : rows_each(std::max(kLeastRows, (rows + kMost - 1) / kMost)),
        count((rows + rows_each - 1) / rows_each) {}

  std::size_t rows_each;
  std::size_t count;
};

// From one block's sums of gain to the next's; those of the bias lie behind them all. A multiple of
// a line of cache.
std::size_t stride(std::size_t width) { return (width + 15) / 16 * 16; }

}  // namespace

void run(const Cpu& cpu, const ops::Norm& call) {
  ops::check(call);
  const bool branches = ops::is_given(call.branch);
  const DropoutKey key = dropout_key(call.dropout);
  const NormRows all{
      .begin = 0,
      .end = static_cast<std::size_t>(call.x.shape()[0]),
      .width = static_cast<std::size_t>(call.x.shape()[1]),
      .subtracts_mean = call.kind == ops::NormKind::kLayer,
      .epsilon = call.epsilon,
      .x = call.x.data(),
      .branch = data_or_null(call.branch),
      .dropout = branches && call.dropout.probability > 0 ? &key : nullptr,
      .sum = branches ? call.sum.data() : call.x.data(),
      .gain = call.gain.data(),
      .bias = data_or_null(call.bias),
      .y = call.y.data(),
      .mean = statistic(call.mean),
      .rstd = statistic(call.rstd),
  };
  const auto kernel = norm_kernels(cpu.isa).forward[call.x.dtype()];
  split(cpu.team, all.end, 1, 2 * call.x.bytes(), [&](Range range) {
    NormRows rows = all;
    rows.begin = range.begin;
    rows.end = range.end;
    kernel(rows);
  });
}

void run(const Cpu& cpu, const ops::NormBackward& call, std::byte* scratch) {
  const DropoutKey key = dropout_key(call.dropout);
  const NormBackwardRows all{
      .begin = 0,
      .end = static_cast<std::size_t>(call.dy.shape()[0]),
      .width = static_cast<std::size_t>(call.dy.shape()[1]),
      .subtracts_mean = call.kind == ops::NormKind::kLayer,
      .dy = call.dy.data(),
      .sum = call.sum.data(),
      .gain = call.gain.data(),
      .mean = statistic(call.mean),
      .rstd = statistic(call.rstd),
      .dresidual = data_or_null(call.dresidual),
      .dsum = call.dsum.data(),
      .dropout = call.dropout.probability > 0 ? &key : nullptr,
      .dbranch = ops::is_given(call.dbranch) ? call.dbranch.data() : nullptr,
      .dgain = nullptr,
      .dbias = nullptr,
  };
  const NormKernels& kernels = norm_kernels(cpu.isa);
  const auto kernel = kernels.backward[call.dy.dtype()];
  const Blocks blocks(all.end);
  const std::size_t part = stride(all.width);
  auto* dgains = reinterpret_cast<float*>(scratch);
  float* dbiases = ops::is_given(call.dbias) ? dgains + blocks.count * part : nullptr;

  split(cpu.team, blocks.count, 1, 3 * call.dy.bytes(), [&](Range range) {
    for (std::size_t block = range.begin; block < range.end; ++block) {
      NormBackwardRows rows = all;
      rows.begin = block * blocks.rows_each;
      rows.end = std::min(all.end, rows.begin + blocks.rows_each);
      rows.dgain = dgains + block * part;
      std::fill_n(rows.dgain, all.width, 0.0f);
      if (dbiases != nullptr) {
        rows.dbias = dbiases + block * part;
        std::fill_n(rows.dbias, all.width, 0.0f);
      }
      kernel(rows);
    }
  });

  const auto add = [&](const Tensor& gradient, const float* parts, Range columns) {
    kernels.add_parts[gradient.dtype()](gradient.data() + columns.begin * size_of(gradient.dtype()),
                                        parts + columns.begin, blocks.count, part, columns.size());
  };
  split(cpu.team, all.width, kElementGrain, blocks.count * part * sizeof(float),
        [&](Range columns) {
          add(call.dgain, dgains, columns);
          if (dbiases != nullptr) add(call.dbias, dbiases, columns);
        });
}

std::size_t norm_scratch(const Cpu&, std::int64_t rows, std::int64_t width) {
  const Blocks blocks(static_cast<std::size_t>(rows));
  return 2 * blocks.count * stride(static_cast<std::size_t>(width)) * sizeof(float);
}

}  // namespace lockstep::cpu
