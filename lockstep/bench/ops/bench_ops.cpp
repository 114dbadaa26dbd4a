#include "lockstep/bench/ops/bench_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/bench/ops/case_tensors.h"
#include "lockstep/bench/statistics.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFewestCalls = 5;
constexpr std::size_t kMostCalls = 500;

void print_now(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

double seconds_of(Ops& ops, const OpCase& one, const Tensors& tensors) {
  const auto start = Clock::now();
  one.run(ops, tensors);
  ops.synchronize();
  return std::chrono::duration<double>(Clock::now() - start).count();
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

double OpTime::percent_of_copy(const Floor& floor) const {
  return 100 * bytes / median() / floor.streaming.copy;
}

double OpTime::speed_up() const { return quantile(peer_samples, 0.5) / median(); }

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
    const CaseScratch scratch(one, ops);
    const std::vector<CaseTensors> sets = make_sets(one, ops, more_than_caches);
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
