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

// Adds the sums of all blocks to a gradient.
void add_blocks(const Cpu& cpu, const Blocks& blocks, const float* parts, const Tensor& gradient) {
  const std::size_t width = gradient.elements();
  const std::size_t part = stride(width);
  const auto add = norm_kernels(cpu.isa).add_parts[gradient.dtype()];
  split(cpu.team, width, kElementGrain, blocks.count * part * sizeof(float), [&](Range columns) {
    add(gradient.data() + columns.begin * size_of(gradient.dtype()), parts + columns.begin,
        blocks.count, part, columns.size());
  });
}

// Where the heads of a row begin.
struct HeadPlaces {
  explicit HeadPlaces(const ops::Heads& heads)
      : first(heads.rows.data() +
              static_cast<std::size_t>(heads.first) * size_of(heads.rows.dtype())),
        bytes(static_cast<std::size_t>(heads.rows.shape()[1]) * size_of(heads.rows.dtype())) {}
  std::byte* row(std::size_t index) const { return first + index * bytes; }

  std::byte* first;
  std::size_t bytes;  // from row to row
};

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
      .one = call.above_one ? 1.0f : 0.0f,
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
      .one = call.above_one ? 1.0f : 0.0f,
  };
  const auto kernel = norm_kernels(cpu.isa).backward[call.dy.dtype()];
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

  add_blocks(cpu, blocks, dgains, call.dgain);
  if (dbiases != nullptr) add_blocks(cpu, blocks, dbiases, call.dbias);
}

// The heads of a row lie one after the other, as the rows of a norm do.
void run(const Cpu& cpu, const ops::HeadNorm& call) {
  ops::check(call);
  const auto heads = static_cast<std::size_t>(call.heads);
  const HeadPlaces x(call.x), y(call.y);
  const auto kernel = norm_kernels(cpu.isa).forward[call.x.rows.dtype()];
  const std::size_t rows = static_cast<std::size_t>(call.x.rows.shape()[0]);
  split(cpu.team, rows, 1, 2 * call.x.rows.bytes(), [&](Range range) {
    for (std::size_t row = range.begin; row < range.end; ++row) {
      kernel({.begin = 0,
              .end = heads,
              .width = static_cast<std::size_t>(call.head_size),
              .subtracts_mean = false,
              .epsilon = call.epsilon,
              .x = x.row(row),
              .branch = nullptr,
              .dropout = nullptr,
              .sum = x.row(row),
              .gain = call.gain.data(),
              .bias = nullptr,
              .y = y.row(row),
              .mean = nullptr,
              .rstd = statistic(call.rstd) + row * heads});
    }
  });
}

void run(const Cpu& cpu, const ops::HeadNormBackward& call, std::byte* scratch) {
  const auto heads = static_cast<std::size_t>(call.heads);
  const auto width = static_cast<std::size_t>(call.head_size);
  const HeadPlaces x(call.x), dy(call.dy), dx(call.dx);
  const std::size_t rows = static_cast<std::size_t>(call.x.rows.shape()[0]);
  const auto kernel = norm_kernels(cpu.isa).backward[call.x.rows.dtype()];
  const Blocks blocks(rows);
  auto* dgains = reinterpret_cast<float*>(scratch);
  split(cpu.team, blocks.count, 1, 3 * call.x.rows.bytes(), [&](Range range) {
    for (std::size_t block = range.begin; block < range.end; ++block) {
      float* dgain = dgains + block * stride(width);
      std::fill_n(dgain, width, 0.0f);
      const std::size_t end = std::min(rows, (block + 1) * blocks.rows_each);
      for (std::size_t row = block * blocks.rows_each; row < end; ++row) {
        kernel({.begin = 0,
                .end = heads,
                .width = width,
                .subtracts_mean = false,
                .dy = dy.row(row),
                .sum = x.row(row),
                .gain = call.gain.data(),
                .mean = nullptr,
                .rstd = statistic(call.rstd) + row * heads,
                .dresidual = nullptr,
                .dsum = dx.row(row),
                .dropout = nullptr,
                .dbranch = nullptr,
                .dgain = dgain,
                .dbias = nullptr});
      }
    }
  });
  add_blocks(cpu, blocks, dgains, call.dgain);
}

std::size_t norm_scratch(const Cpu&, std::int64_t rows, std::int64_t width) {
  const Blocks blocks(static_cast<std::size_t>(rows));
  return 2 * blocks.count * stride(static_cast<std::size_t>(width)) * sizeof(float);
}

}  // namespace lockstep::cpu
