// Measures implementations by turns on the same work, so that disturbances of the machine affect
// all of them equally.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/bench/collectives/implementation.h"
#include "lockstep/bench/collectives/job.h"
#include "lockstep/bench/collectives/task.h"
#include "lockstep/bench/interrupt.h"

namespace lockstep::bench {

// How long to measure. Each implementation gets `turns` turns per piece of work, and in all of them
// together about `seconds` of time (filling and checking included) within the bounds on calls.
struct Effort {
  int turns = 5;
  double seconds = 0.3;
  int fewest_calls = 3;  // per turn
  int most_calls = 400;  // per turn
  std::chrono::seconds deadline{
      60};  // of a turn; an implementation that takes longer is considered hung
};

// What one implementation achieved on one piece of work.
struct Measurement {
  Implementation implementation;
  Collective op = Collective::kAllReduce;
  DType dtype = DType::kF32;
  std::size_t bytes = 0;
  int ranks = 0;
  std::string algorithm;
  std::string why;
  std::vector<double> samples;                  // seconds of the slowest rank of each call, sorted
  std::string unsupported;                      // it cannot do this at all: no samples
  std::string problem;                          // wrong results, or the failure of the job
  std::optional<double> ratio_to_fastest_peer;  // its time / ours: above 1 we are faster
  std::optional<double> ratio_to_fastest_gloo;

  bool correct() const { return problem.empty() && !samples.empty(); }
  double quantile(double q) const;
  double median() const { return quantile(0.5); }
  double algorithm_bandwidth() const;  // bytes per second; see task.h
  double bus_bandwidth() const;
};

// Called before each turn: whose it is, and which.
using Progress = std::function<void(const Implementation&, int turn)>;

// `work` says op, dtype, bytes and root. Implementations whose job is not among `jobs` are left
// out; those whose job has failed are reported with that.
std::vector<Measurement> measure(std::span<const Implementation> implementations,
                                 std::span<const std::unique_ptr<Job>> jobs, const Task& work,
                                 int ranks, const Effort& effort, const Interrupt& interrupt,
                                 const Progress& progress);

// Fills in the ratios from the correct results of the peers.
void compare_with_peers(std::span<Measurement> measurements);

}  // namespace lockstep::bench
