#include "lockstep/bench/collectives/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/bench/statistics.h"

namespace lockstep::bench {
namespace {

constexpr int kProbeCalls = 3;
constexpr int kPortions = 4;
constexpr double kLongestTurn = 2;  // times the planned length of a turn

struct Contender {
  Measurement result;
  Job* job = nullptr;
  int calls = 0;  // per turn; found by the probe

  bool out() const { return !result.problem.empty() || !result.unsupported.empty(); }
};

struct Portion {
  std::vector<double> samples;  // none: the result says why
  double wall_seconds = 0;
};

Portion run_portion(Contender& contender, Task task, const Effort& effort,
                    const Interrupt& interrupt) {
  Measurement& result = contender.result;
  task.flavour = result.implementation.flavour;
  task.algorithm = result.implementation.algorithm;
  const auto deadline = deadline_in(effort.deadline);
  const auto replies = contender.job->run(task, deadline, interrupt);
  if (!replies) {
    result.problem = contender.job->failure();
    return {};
  }
  result.algorithm = replies->front().algorithm;
  result.why = replies->front().why;
  std::vector<std::vector<double>> seconds;
  for (const Reply& reply : *replies) {
    if (!reply.unsupported.empty()) result.unsupported = reply.unsupported;
    if (!reply.wrong.empty() && result.problem.empty()) {
      result.problem = "wrong result: " + reply.wrong;
    }
    seconds.push_back(reply.seconds);
  }
  if (contender.out()) return {};
  return {slowest_rank(seconds), replies->front().wall_seconds};
}

void probe(Contender& contender, Task task, const Effort& effort, const Interrupt& interrupt) {
  task.warmup = 1;
  task.iterations = kProbeCalls;
  const Portion portion = run_portion(contender, task, effort, interrupt);
  const double per_turn = effort.seconds / effort.turns;
  const double calls = std::floor(per_turn / std::max(portion.wall_seconds / kProbeCalls, 1e-9));
  contender.calls =
      static_cast<int>(std::clamp(calls, double(effort.fewest_calls), double(effort.most_calls)));
}

// A turn comes in portions, so that calls which become slower than the probe saw them cannot make
// it endless.
void take_turn(Contender& contender, Task task, const Effort& effort, const Interrupt& interrupt) {
  const double enough = kLongestTurn * effort.seconds / effort.turns;
  double spent = 0;
  task.warmup = std::max(2, contender.calls / 8);  // warms caches, wakes sleeping ranks
  for (int done = 0; done < contender.calls && !contender.out(); done += task.iterations) {
    if (done >= effort.fewest_calls && spent > enough) return;
    const int portion_size = std::max(effort.fewest_calls, contender.calls / kPortions);
    task.iterations = std::min(portion_size, contender.calls - done);
    const Portion portion = run_portion(contender, task, effort, interrupt);
    auto& all = contender.result.samples;
    all.insert(all.end(), portion.samples.begin(), portion.samples.end());
    spent += portion.wall_seconds;
    task.warmup = 1;
  }
}

}  // namespace

double Measurement::quantile(double q) const { return bench::quantile(samples, q); }

double Measurement::algorithm_bandwidth() const { return static_cast<double>(bytes) / median(); }

double Measurement::bus_bandwidth() const { return algorithm_bandwidth() * bus_factor(op, ranks); }

std::vector<Measurement> measure(std::span<const Implementation> implementations,
                                 std::span<const std::unique_ptr<Job>> jobs, const Task& work,
                                 int ranks, const Effort& effort, const Interrupt& interrupt,
                                 const Progress& progress) {
  std::vector<Contender> contenders;
  for (const Implementation& implementation : implementations) {
    const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const auto& candidate) {
      return candidate->name() == implementation.job;
    });
    if (job == jobs.end()) continue;
    Measurement result{.implementation = implementation,
                       .op = work.op,
                       .dtype = work.dtype,
                       .bytes = work.bytes,
                       .ranks = ranks};
    result.problem = (*job)->failure();
    contenders.push_back({std::move(result), job->get()});
  }
  for (Contender& contender : contenders) {
    if (contender.out()) continue;
    progress(contender.result.implementation, 0);
    probe(contender, work, effort, interrupt);
  }
  for (int turn = 1; turn <= effort.turns; ++turn) {
    for (Contender& contender : contenders) {
      if (contender.out()) continue;
      progress(contender.result.implementation, turn);
      take_turn(contender, work, effort, interrupt);
    }
  }
  std::vector<Measurement> results;
  for (Contender& contender : contenders) {
    std::sort(contender.result.samples.begin(), contender.result.samples.end());
    results.push_back(std::move(contender.result));
  }
  compare_with_peers(results);
  return results;
}

void compare_with_peers(std::span<Measurement> measurements) {
  std::optional<double> fastest;
  std::optional<double> fastest_gloo;
  const auto keep_least = [](std::optional<double>& least, double seconds) {
    least = std::min(least.value_or(seconds), seconds);
  };
  for (const Measurement& one : measurements) {
    if (!one.implementation.is_peer || !one.correct()) continue;
    keep_least(fastest, one.median());
    if (one.implementation.job == "gloo") keep_least(fastest_gloo, one.median());
  }
  for (Measurement& one : measurements) {
    if (!one.correct()) continue;
    if (fastest) one.ratio_to_fastest_peer = *fastest / one.median();
    if (fastest_gloo) one.ratio_to_fastest_gloo = *fastest_gloo / one.median();
  }
}

}  // namespace lockstep::bench
