// How fast attention is on the CPU, forward and backward.
//
//   build/release/microbench/attention_benchmark --benchmark_filter='gpt2.*f32/threads:1'
//
// FLOPs are those of the products of matrices, 2 per multiplication and addition, 2 products
// forward and 5 backward; causal attention counts only the keys that a query sees.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/base/math/half.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep {
namespace {

using ops::AttentionShape;

Tensor filled(Buffer& buffer, DType dtype, const Shape& shape, std::uint64_t seed) {
  buffer = Buffer(Tensor::bytes_of(dtype, shape));
  const Tensor tensor = buffer.tensor(dtype, shape);
  for (std::size_t i = 0; i < tensor.elements(); ++i) {
    const float x = uniform_at(seed, 0, i) - 0.5f;
    if (dtype == DType::kF32) tensor.as<float>()[i] = x;
    if (dtype == DType::kBF16) tensor.as<BFloat16>()[i] = to_bfloat16(x);
    if (dtype == DType::kF16) tensor.as<Half>()[i] = to_half(x);
  }
  return tensor;
}

double products(const AttentionShape& shape) {
  const auto queries = static_cast<double>(shape.queries), keys = static_cast<double>(shape.keys);
  const double pairs = shape.causal ? queries * (queries + 1) / 2 : queries * keys;
  return 2.0 * pairs * static_cast<double>(shape.batch * shape.heads * shape.head_size);
}

void run_attention(benchmark::State& state, const AttentionShape& shape, double dropout,
                   bool backward) {
  const std::int64_t columns = shape.heads * shape.head_size;
  const std::int64_t key_columns = shape.kv_heads * shape.head_size;
  const std::int64_t rows = shape.batch * shape.queries;
  const Shape packed{rows, columns + 2 * key_columns};
  Buffer memory[6];
  const Tensor qkv = filled(memory[0], shape.dtype, packed, 1);
  const Tensor dqkv = filled(memory[1], shape.dtype, packed, 2);
  const Tensor out = filled(memory[2], shape.dtype, {rows, columns}, 3);
  const Tensor dout = filled(memory[3], shape.dtype, {rows, columns}, 4);
  const Tensor log_sum =
      filled(memory[4], DType::kF32, {shape.batch, shape.heads, shape.queries}, 5);
  const auto ops = make_cpu_ops(static_cast<int>(state.range(0)));
  const auto bytes = static_cast<std::int64_t>(ops->scratch(shape));
  ops->use_scratch(filled(memory[5], DType::kF32, {bytes / 4 + 1}, 6));

  const ops::Attention forward{.shape = shape,
                               .scale = 1 / std::sqrt(static_cast<float>(shape.head_size)),
                               .q = {qkv, 0},
                               .k = {qkv, columns},
                               .v = {qkv, columns + key_columns},
                               .dropout = {.probability = dropout, .seed = 1},
                               .out = out,
                               .log_sum = log_sum};
  const ops::AttentionBackward gradients{.shape = shape,
                                         .scale = forward.scale,
                                         .q = forward.q,
                                         .k = forward.k,
                                         .v = forward.v,
                                         .dropout = forward.dropout,
                                         .out = out,
                                         .log_sum = log_sum,
                                         .dout = dout,
                                         .dq = {dqkv, 0},
                                         .dk = {dqkv, columns},
                                         .dv = {dqkv, columns + key_columns}};
  ops->run(forward);
  for (auto _ : state) {
    if (backward) {
      ops->run(gradients);
    } else {
      ops->run(forward);
    }
  }
  state.counters["flops"] = benchmark::Counter(products(shape) * (backward ? 5 : 2),
                                               benchmark::Counter::kIsIterationInvariantRate,
                                               benchmark::Counter::kIs1000);
}

struct Named {
  const char* name;
  AttentionShape shape;
  double dropout = 0;
};

constexpr Named kShapes[] = {
    {"gpt2", {4, 1024, 1024, 12, 12, 64, true}},
    {"gpt2-dropout", {4, 1024, 1024, 12, 12, 64, true}, 0.1},
    {"bert", {8, 512, 512, 12, 12, 64, false}},
    {"llama", {1, 2048, 2048, 32, 8, 128, true}},
    {"head80", {1, 1024, 1024, 8, 8, 80, true}},
    {"one-head", {1, 8192, 8192, 1, 1, 64, true}},
};

void register_all() {
  for (const Named& named : kShapes) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const bool backward : {false, true}) {
        AttentionShape shape = named.shape;
        shape.dtype = dtype;
        const std::string name = fmt::format(
            "{}/{}/{}", named.name, backward ? "backward" : "forward", lockstep::name(dtype));
        benchmark::RegisterBenchmark(name.c_str(), run_attention, shape, named.dropout, backward)
            ->ArgName("threads")
            ->Arg(1)
            ->Arg(2)
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
      }
    }
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
