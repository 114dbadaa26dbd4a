#include "lockstep/bench/ops/timed_case.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lockstep/base/system/clock.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostInABatch = 2000;

// Whole rounds of the sets.
std::size_t calls_of_a_batch(double seconds_of_a_call, double batch_seconds, std::size_t sets) {
  const double wanted = std::min(batch_seconds / std::max(seconds_of_a_call, 1e-9),
                                 static_cast<double>(kMostInABatch));
  const double rounds = std::ceil(wanted / static_cast<double>(sets));
  return sets * static_cast<std::size_t>(std::max(1.0, rounds));
}

}  // namespace

TimedCase::TimedCase(Ops& ops, const OpCase& one, std::size_t more_than_caches,
                     double batch_seconds)
    : ops_(ops), one_(one), scratch_(one_, ops), sets_(make_sets(one_, ops, more_than_caches)) {
  run_calls(sets_.size());  // the first calls choose algorithms of products
  ops_.synchronize();
  const auto start = Clock::now();
  run_calls(sets_.size());
  ops_.synchronize();
  const double estimate = seconds_since(start) / static_cast<double>(sets_.size());
  calls_ = calls_of_a_batch(estimate, batch_seconds, sets_.size());
  if (ops_.can_capture()) batch_ = capture(ops_, [&] { run_calls(calls_); });
  seconds();  // not counted: a graph's first launch uploads it
}

void TimedCase::run_calls(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) one_.run(ops_, sets_[i % sets_.size()].tensors());
}

double TimedCase::seconds() {
  const auto start = Clock::now();
  batch_ != nullptr ? batch_->launch() : run_calls(calls_);
  ops_.synchronize();
  return seconds_since(start) / static_cast<double>(calls_);
}

}  // namespace lockstep::bench
