#include "lockstep/train/observe/peak.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kNarrowest = 128;
constexpr std::int64_t kWidest = 2048;
constexpr std::int64_t kWidestOnGpu = 8192;
constexpr double kLongEnough = 0.002;  // seconds of a call; twice as wide would be eight times that
constexpr double kLongestWait = 0.2;   // seconds, while other processes may have disturbed

// Values as activations have them; zeros would be multiplied faster on some machines.
Buffer filled(DType dtype, const Shape& shape, Ops& ops) {
  constexpr std::size_t kPeriod = 4096;
  std::vector<float> pattern(kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) pattern[i] = uniform_at(1, 0, i) - 0.5f;
  Buffer values(Tensor::bytes_of(DType::kF32, shape));
  const Tensor wide = values.tensor(DType::kF32, shape);
  const auto elements = wide.as<float>();
  for (std::size_t first = 0; first < elements.size(); first += kPeriod) {
    const std::size_t count = std::min(kPeriod, elements.size() - first);
    std::memcpy(&elements[first], pattern.data(), count * sizeof(float));
  }
  if (dtype == DType::kF32 && ops.device() == Device{}) return values;
  Buffer there(values.bytes(), ops.device());
  copy(there.tensor(DType::kF32, shape), wide);
  if (dtype == DType::kF32) return there;
  Buffer rounded(Tensor::bytes_of(dtype, shape), ops.device());
  ops.run(ops::Cast{.from = there.tensor(DType::kF32, shape), .to = rounded.tensor(dtype, shape)});
  ops.synchronize();
  return rounded;
}

template <class Call>
double seconds_of_call(Ops& ops, const Call& call) {
  const auto once = [&] {
    ops.run(call);
    ops.synchronize();
  };
  once();
  const auto begin = SteadyClock::now();
  once();
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

}  // namespace

double linear_flops(const LinearShape& shape) {
  return 2 * static_cast<double>(shape.rows) * static_cast<double>(shape.in) *
         static_cast<double>(shape.out);
}

LinearSeconds time_linear(const LinearShape& shape, Ops& ops) {
  const Shape x_shape{shape.rows, shape.in};
  const Shape y_shape{shape.rows, shape.out};
  const Shape weight_shape{shape.out, shape.in};
  const Buffer x_memory = filled(shape.dtype, x_shape, ops);
  const Buffer weight_memory = filled(shape.dtype, weight_shape, ops);
  const Buffer y_memory = filled(shape.dtype, y_shape, ops);
  const Buffer gradient_memory = filled(shape.gradient, weight_shape, ops);
  const Buffer scratch(ops.scratch(shape), ops.device());
  ops.use_scratch(scratch.tensor(DType::kU8, {static_cast<std::int64_t>(scratch.bytes())}));
  const Tensor x = x_memory.tensor(shape.dtype, x_shape);
  const Tensor weight = weight_memory.tensor(shape.dtype, weight_shape);
  const Tensor y = y_memory.tensor(shape.dtype, y_shape);
  const Tensor dweight = gradient_memory.tensor(shape.gradient, weight_shape);
  LinearSeconds seconds;
  seconds.backward_weight =
      seconds_of_call(ops, ops::LinearBackwardWeight{.dy = y, .x = x, .dweight = dweight});
  seconds.backward_input =
      seconds_of_call(ops, ops::LinearBackwardInput{.dy = y, .weight = weight, .dx = x});
  seconds.forward = seconds_of_call(ops, ops::Linear{.x = x, .weight = weight, .y = y});
  ops.use_scratch({});
  return seconds;
}

double measure_peak_flops(Ops& ops, DType dtype) {
  const auto begin = SteadyClock::now();
  double best = 0;
  std::int64_t width = kNarrowest;
  const std::int64_t widest = ops.device() == Device{} ? kWidest : kWidestOnGpu;
  while (true) {
    const LinearShape shape{
        .rows = width, .in = width, .out = width, .dtype = dtype, .gradient = dtype};
    LinearSeconds seconds;
    try {
      seconds = time_linear(shape, ops);
    } catch (const Error& error) {
      // The run has taken its memory by now; what is left says how large matrices may be.
      ops.use_scratch({});
      if (error.code() != ErrorCode::kSystem || best == 0) throw;
      return best;
    }
    const double fastest =
        std::min({seconds.forward, seconds.backward_input, seconds.backward_weight});
    best = std::max(best, linear_flops(shape) / std::max(fastest, 1e-9));
    if (fastest < kLongEnough && width < widest) {
      width *= 2;
    } else if (std::chrono::duration<double>(SteadyClock::now() - begin).count() > kLongestWait) {
      return best;
    }
  }
}

RankPeak measure_rank_peak(Ops& ops, DType dtype, int threads) {
  RankPeak peak{.flops = measure_peak_flops(ops, dtype), .threads = threads};
  std::ifstream("/proc/sys/kernel/random/boot_id") >> peak.processor;
  if (ops.device() == Device{}) {
    peak.cpus = CpuSet::of_this_thread();
  } else {
    peak.processor += fmt::format("/gpu{}", ops.device().index);
  }
  return peak;
}

std::string RankPeak::text() const {
  return fmt::format("{} {} {} [{}]", flops, threads, processor, cpus.text());
}

RankPeak RankPeak::parse(const std::string& text) {
  RankPeak peak;
  std::string cpus;
  std::istringstream(text) >> peak.flops >> peak.threads >> peak.processor >> cpus;
  peak.cpus = CpuSet::parse(std::string_view(cpus).substr(std::min<std::size_t>(1, cpus.size())));
  return peak;
}

double peak_of_ranks(std::span<const RankPeak> ranks) {
  struct Processor {
    CpuSet cpus;
    int wanted = 0;  // cores
    double sum = 0;
    double fastest = 0;  // of a core
  };
  std::map<std::string, Processor> processors;
  for (const RankPeak& rank : ranks) {
    // A rank with more threads than cores has measured what they do on these.
    const int cores = std::max(1, std::min(rank.threads, rank.cpus.count()));
    Processor& all = processors[rank.processor];
    all.cpus.add(rank.cpus);
    all.wanted += cores;
    all.sum += rank.flops;
    all.fastest = std::max(all.fastest, rank.flops / cores);
  }
  double flops = 0;
  for (const auto& [name, all] : processors) {
    const int cores = std::max(1, all.cpus.count());
    flops += all.wanted <= cores ? all.sum : all.fastest * cores;
  }
  return flops;
}

}  // namespace lockstep::train
