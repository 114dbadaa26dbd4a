#include "lockstep/ops/cuda/linear/tuning.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/memory.h"

namespace lockstep::cuda {
namespace {

constexpr int kRounds = 3;
constexpr int kMostLaunches = 20;
constexpr double kRoundMicroseconds = 1000;

// Other streams of the process may be captured into graphs meanwhile. Some capture modes forbid
// other threads to allocate memory unless they relax the mode.
class AsideFromCaptures {
 public:
  AsideFromCaptures() { exchange(); }
  ~AsideFromCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  AsideFromCaptures(const AsideFromCaptures&) = delete;
  AsideFromCaptures& operator=(const AsideFromCaptures&) = delete;

 private:
  void exchange() {
    check(cudaThreadExchangeStreamCaptureMode(&mode_), "leave the mode of stream captures");
  }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class TimingEvent {
 public:
  TimingEvent() { check(cudaEventCreate(&event_), "make an event"); }
  ~TimingEvent() { cudaEventDestroy(event_); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Zeroed memory of D's size; none if the allocation fails.
class StandIn {
 public:
  StandIn(const Product& product, cudaStream_t stream) {
    const std::size_t bytes =
        (static_cast<std::size_t>(product.n - 1) * static_cast<std::size_t>(product.ldd) +
         static_cast<std::size_t>(product.m)) *
        size_of(product.output);
    if (cudaMalloc(&data_, bytes) != cudaSuccess) {
      data_ = nullptr;
      cudaGetLastError();
      return;
    }
    check(cudaMemsetAsync(data_, 0, bytes, stream), "clear memory");
  }
  ~StandIn() { cudaFree(data_); }  // waits for the device
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

class Stopwatch {
 public:
  Stopwatch(Plan& plan, const Operands& operands, const Context& context)
      : plan_(plan), operands_(operands), context_(context) {}

  // Microseconds per launch; infinite where the algorithm does not run.
  double time(const Algorithm& algorithm, int launches) {
    check(cudaEventRecord(begin_.get(), context_.stream), "record an event");
    for (int i = 0; i < launches; ++i) {
      if (plan_.launch(algorithm, operands_, context_.workspace, context_.stream) !=
          CUBLAS_STATUS_SUCCESS) {
        return std::numeric_limits<double>::infinity();
      }
    }
    check(cudaEventRecord(end_.get(), context_.stream), "record an event");
    check(cudaEventSynchronize(end_.get()), "time a product of matrices");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "read the time");
    return 1000.0 * static_cast<double>(milliseconds) / launches;
  }

 private:
  Plan& plan_;
  const Operands& operands_;
  const Context& context_;
  TimingEvent begin_, end_;
};

double median(std::array<double, kRounds> times) {
  std::sort(times.begin(), times.end());
  return times[kRounds / 2];
}

Fastest fastest_of(Stopwatch& stopwatch, std::span<const Algorithm> algorithms) {
  std::vector<double> once;
  for (const Algorithm& algorithm : algorithms) {
    const double first = stopwatch.time(algorithm, 1);  // loads the kernel
    once.push_back(first == std::numeric_limits<double>::infinity() ? first
                                                                    : stopwatch.time(algorithm, 1));
  }
  const double best_once = *std::min_element(once.begin(), once.end());
  Fastest best{0, std::numeric_limits<double>::infinity()};
  if (best_once == best.microseconds) return best;

  // The time of a single launch includes a few microseconds of overhead.
  const double near = 1.3 * best_once + 5;
  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < once.size(); ++i) {
    if (once[i] <= near) rest.push_back(i);
  }
  const int launches =
      std::clamp(static_cast<int>(kRoundMicroseconds / std::max(best_once, 1.0)), 1, kMostLaunches);
  std::vector<std::array<double, kRounds>> times(rest.size());
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < rest.size(); ++i) {
      times[i][round] = stopwatch.time(algorithms[rest[i]], launches);
    }
  }
  double least = std::numeric_limits<double>::infinity();
  for (const auto& of_one : times) least = std::min(least, median(of_one));
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (median(times[i]) <= 1.01 * least) return {rest[i], median(times[i])};
  }
  return best;
}

}  // namespace

std::optional<Fastest> fastest(Plan& plan, std::span<const Algorithm> algorithms,
                               const Operands& operands, const Context& context) {
  if (algorithms.empty()) return std::nullopt;
  const AsideFromCaptures aside;
  const auto measure = [&](const Operands& measured) -> std::optional<Fastest> {
    Stopwatch stopwatch(plan, measured, context);
    const Fastest found = fastest_of(stopwatch, algorithms);
    if (found.microseconds == std::numeric_limits<double>::infinity()) return std::nullopt;
    return found;
  };
  if (!plan.product().adds || operands.c != operands.d) return measure(operands);

  // An allocation may wait for the kernel of another rank, which waits for this one's.
  if (cuda::ranks_are_threads()) return std::nullopt;
  const StandIn stand_in(plan.product(), context.stream);
  if (stand_in.data() == nullptr) return std::nullopt;
  Operands apart = operands;
  apart.c = stand_in.data();
  apart.d = stand_in.data();
  return measure(apart);
}

}  // namespace lockstep::cuda
