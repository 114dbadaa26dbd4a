// How fast codecs encode and decode a bucket of 25 MB on one core.
//
//   build/release/microbench/compression_benchmark --benchmark_filter=int8
//
// Bytes per second count the floats that go in or come out, not the payload.
#include <benchmark/benchmark.h>

#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/parallel/compression/codec.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kElements = 6'553'600;

const std::vector<float>& gradients() {
  static const std::vector<float> kValues = [] {
    std::vector<float> values(kElements);
    for (std::size_t i = 0; i < kElements; ++i) values[i] = normal_at(1, 0, i);
    return values;
  }();
  return kValues;
}

struct Subject {
  explicit Subject(Compression compression)
      : codec(make_codec({.compression = compression})),
        payload(codec->bytes(kElements)),
        scratch(codec->scratch_bytes(kElements)),
        residual(codec->needs_residual() ? kElements : 0, 0.0f) {}

  std::unique_ptr<Codec> codec;
  std::vector<std::byte> payload;
  std::vector<std::byte> scratch;
  std::vector<float> residual;
};

void count_floats(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(kElements * sizeof(float)));
}

void run_encode(benchmark::State& state, Compression compression) {
  Subject subject(compression);
  const std::vector<float>& values = gradients();
  std::uint64_t seed = 0;
  for (auto _ : state) {
    subject.codec->encode(values, subject.residual, subject.payload, subject.scratch, ++seed);
    benchmark::ClobberMemory();
  }
  count_floats(state);
}

void run_decode(benchmark::State& state, Compression compression, bool add) {
  Subject subject(compression);
  std::vector<float> out(kElements, 0.0f);
  subject.codec->encode(gradients(), subject.residual, subject.payload, subject.scratch, 1);
  for (auto _ : state) {
    if (add) {
      subject.codec->decode_add(subject.payload, out, 1);
    } else {
      subject.codec->decode(subject.payload, out, 1);
    }
    benchmark::ClobberMemory();
  }
  count_floats(state);
}

}  // namespace
}  // namespace lockstep::parallel

int main(int argc, char** argv) {
  using namespace lockstep::parallel;
  for (const Compression compression : kAllCompressions) {
    const std::string codec(name(compression));
    benchmark::RegisterBenchmark(("encode/" + codec).c_str(), run_encode, compression)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("decode/" + codec).c_str(), run_decode, compression, false)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("decode_add/" + codec).c_str(), run_decode, compression, true)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
