#include "lockstep/bench/ops/peak.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "lockstep/base/system/clock.h"
#include "lockstep/bench/ops/peak_loops.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPasses = 6;
constexpr double kPassSeconds = 0.03;

long rounds_of_a_pass(const PeakLoop& loop) {
  long rounds = 1000;
  while (true) {
    const auto start = Clock::now();
    loop.run(rounds);
    const double seconds = seconds_since(start);
    if (seconds > kPassSeconds / 10) {
      return static_cast<long>(static_cast<double>(rounds) * kPassSeconds / seconds) + 1;
    }
    rounds *= 4;
  }
}

}  // namespace

Peak measure_peak(DType dtype, int threads) {
  const PeakLoop loop = peak_loop(dtype);
  const long rounds = rounds_of_a_pass(loop);
  const double flops = loop.flops_per_round * static_cast<double>(rounds) * threads;
  Peak peak{threads, std::string(loop.instruction), 0};
  Clock::time_point started;
  std::barrier start(threads, [&]() noexcept { started = Clock::now(); });
  std::barrier finish(threads, [&]() noexcept {
    peak.flops = std::max(peak.flops, flops / seconds_since(started));
  });
  const auto body = [&] {
    for (int pass = 0; pass < kPasses; ++pass) {
      start.arrive_and_wait();
      loop.run(rounds);
      finish.arrive_and_wait();
    }
  };
  std::vector<std::jthread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(body);
  body();
  others.clear();
  return peak;
}

}  // namespace lockstep::bench
