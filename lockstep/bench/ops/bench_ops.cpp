#include "lockstep/bench/ops/bench_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/bench/ops/fill.h"
#include "lockstep/bench/statistics.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFewestCalls = 5;
constexpr std::size_t kMostCalls = 500;
constexpr std::size_t kMostSets = 16;

void print_now(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

// The tensors of a case, filled.
class CaseTensors {
 public:
  CaseTensors(const OpCase& one, Ops& ops) {
    std::uint64_t seed = 1;
    for (const OpField& field : one.fields) {
      const Buffer& buffer = buffers_.emplace_back(field.bytes());
      const Tensor tensor = buffer.tensor(field.dtype, field.shape);
      field.role == Role::kOutput ? fill_zero(tensor) : fill(tensor, field.fill, seed++);
      tensors_.put(field.name, tensor);
    }
    if (one.prepare) one.prepare(ops, tensors_);
  }
  const Tensors& tensors() const { return tensors_; }

 private:
  std::vector<Buffer> buffers_;
  Tensors tensors_;
};

double seconds_of(Ops& ops, const OpCase& one, const Tensors& tensors) {
  const auto start = Clock::now();
  one.run(ops, tensors);
  ops.synchronize();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::size_t count_of_sets(const OpCase& one, std::size_t more_than_caches) {
  const double sets = std::ceil(static_cast<double>(more_than_caches) / std::max(1.0, one.bytes()));
  return std::min(kMostSets, static_cast<std::size_t>(std::max(1.0, sets)));
}

}  // namespace

double OpTime::median() const { return quantile(samples, 0.5); }

bool OpTime::is_compute_bound(const Floor& floor) const {
  return flops / floor.peaks.at(dtype).flops > bytes / floor.streaming.best();
}

double OpTime::floor_seconds(const Floor& floor) const {
  return std::max(flops / floor.peaks.at(dtype).flops, bytes / floor.streaming.best());
}

double OpTime::percent_of_floor(const Floor& floor) const {
  return 100 * floor_seconds(floor) / median();
}

OpTime time_op(Ops& ops, const OpDescription& description, DType dtype, const OpsPlan& plan,
               std::size_t more_than_caches) {
  const OpCase one = description.typical(dtype);
  OpTime time{.op = description.name,
              .dtype = dtype,
              .case_name = one.name,
              .threads = plan.threads,
              .flops = one.flops,
              .bytes = one.bytes()};
  try {
    const Buffer scratch(one.scratch ? one.scratch(ops) : 0);
    ops.use_scratch(scratch.tensor(DType::kU8, {static_cast<std::int64_t>(scratch.bytes())}));
    std::vector<CaseTensors> sets;
    while (sets.size() < count_of_sets(one, more_than_caches)) sets.emplace_back(one, ops);
    for (const CaseTensors& set : sets) seconds_of(ops, one, set.tensors());
    double spent = 0;
    while (time.samples.size() < kFewestCalls ||
           (spent < plan.seconds && time.samples.size() < kMostCalls)) {
      const CaseTensors& set = sets[time.samples.size() % sets.size()];
      time.samples.push_back(seconds_of(ops, one, set.tensors()));
      spent += time.samples.back();
    }
    std::sort(time.samples.begin(), time.samples.end());
  } catch (const Error& error) {
    time.samples.clear();
    time.problem = error.what();
  }
  ops.use_scratch({});
  return time;
}

bool run_ops(const OpsPlan& plan) {
  if (!plan.json.empty()) check_can_write(plan.json);
  const auto ops = make_cpu_ops(plan.threads);
  Floor floor{measure_streaming(plan.threads), {}};
  for (const DType dtype : plan.dtypes) floor.peaks[dtype] = measure_peak(dtype, plan.threads);
  print_now(ops_heading(ops->name(), floor));
  std::vector<OpTime> times;
  for (const OpDescription& description : plan.ops) {
    for (const DType dtype : plan.dtypes) {
      times.push_back(time_op(*ops, description, dtype, plan, floor.streaming.array_bytes));
      print_now(ops_line(times.back(), floor));
    }
  }
  if (!plan.json.empty()) {
    write_file(plan.json, ops_json(times, ops->name(), floor));
    print_now(fmt::format("\nwrote {} results to {}\n", times.size(), plan.json.string()));
  }
  return std::all_of(times.begin(), times.end(),
                     [](const OpTime& time) { return time.problem.empty(); });
}

}  // namespace lockstep::bench
