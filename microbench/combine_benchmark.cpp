// How fast combine() moves bytes, beside memcpy and a plain triad over the same memory.
//
//   build/release/microbench/combine_benchmark --benchmark_filter=bf16
//
// The size is that of one buffer; bytes per second count everything read and written, by all
// threads together. Two threads show what is left when ranks share the memory's bandwidth.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "lockstep/base/simd/isa.h"
#include "lockstep/comm/reduce/combine.h"

namespace lockstep {
namespace {

constexpr std::size_t kPage = 4096;

// Page-aligned buffers of ones, a few lines apart so that they do not meet in one cache set.
class Buffers {
 public:
  Buffers(std::size_t buffers, std::size_t bytes) {
    const std::size_t stride = (bytes + kPage - 1) / kPage * kPage + kPage;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, buffers * stride)));
    std::memset(memory_.get(), 1, buffers * stride);
    for (std::size_t b = 0; b < buffers; ++b) {
      pointers_.push_back(memory_.get() + b * stride + b * 256 % kPage);
    }
  }
  std::byte* operator[](std::size_t b) const { return pointers_[b]; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<std::byte*> pointers_;
};

// The first `outputs` inputs are the outputs where `in_place`, as in an all-reduce.
void run_combine(benchmark::State& state, DType dtype, ReduceOp op, std::size_t inputs,
                 std::size_t outputs, bool in_place) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const Buffers buffers(inputs + outputs, bytes);
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
  for (std::size_t i = 0; i < inputs; ++i) in.push_back(buffers[i]);
  for (std::size_t i = 0; i < outputs; ++i) out.push_back(buffers[in_place ? i : inputs + i]);
  for (auto _ : state) {
    combine(in, out, bytes / size_of(dtype), dtype, op, op.kind == ReduceOp::kMean ? 3 : 1);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes) *
                          static_cast<std::int64_t>(inputs + outputs));
}

void run_memcpy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const Buffers buffers(2, bytes);
  for (auto _ : state) {
    std::memcpy(buffers[0], buffers[1], bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes) * 2);
}

void run_triad(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const Buffers buffers(3, bytes);
  auto* a = reinterpret_cast<float*>(buffers[0]);
  const auto* b = reinterpret_cast<const float*>(buffers[1]);
  const auto* c = reinterpret_cast<const float*>(buffers[2]);
  for (auto _ : state) {
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) a[i] = b[i] + 3.0f * c[i];
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes) * 3);
}

struct Case {
  const char* name;
  DType dtype;
  ReduceOp::Kind op;
  std::size_t inputs;
  std::size_t outputs;
  bool in_place;
};

constexpr Case kCases[] = {
    {"f32_sum_2to1", DType::kF32, ReduceOp::kSum, 2, 1, false},
    {"f32_sum_2to2", DType::kF32, ReduceOp::kSum, 2, 2, true},
    {"f32_sum_4to4", DType::kF32, ReduceOp::kSum, 4, 4, true},
    {"f32_sum_8to8", DType::kF32, ReduceOp::kSum, 8, 8, true},
    {"f32_mean_3to3", DType::kF32, ReduceOp::kMean, 3, 3, true},
    {"f32_max_2to2", DType::kF32, ReduceOp::kMax, 2, 2, true},
    {"bf16_sum_2to1", DType::kBF16, ReduceOp::kSum, 2, 1, false},
    {"bf16_sum_2to2", DType::kBF16, ReduceOp::kSum, 2, 2, true},
    {"bf16_sum_4to4", DType::kBF16, ReduceOp::kSum, 4, 4, true},
    {"f16_sum_2to2", DType::kF16, ReduceOp::kSum, 2, 2, true},
    {"i32_sum_2to2", DType::kI32, ReduceOp::kSum, 2, 2, true},
};

void sizes(benchmark::internal::Benchmark* bench) {
  bench->RangeMultiplier(4)->Range(16 << 10, 64 << 20)->MinTime(0.1)->UseRealTime();
  bench->Threads(1)->Threads(2);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  sizes(benchmark::RegisterBenchmark("memcpy", run_memcpy));
  sizes(benchmark::RegisterBenchmark("triad", run_triad));
  for (const Case& c : kCases) {
    sizes(benchmark::RegisterBenchmark(c.name, [c](benchmark::State& state) {
      run_combine(state, c.dtype, c.op, c.inputs, c.outputs, c.in_place);
    }));
  }
  benchmark::AddCustomContext("kernels", std::string(name(chosen_isa())));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
