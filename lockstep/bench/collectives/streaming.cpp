#include "lockstep/bench/collectives/streaming.h"

#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "lockstep/bench/collectives/worker.h"

namespace lockstep::bench {
namespace {

constexpr int kPasses = 8;
constexpr std::size_t kCachesFit = 4;  // STREAM's rule: an array is four times the last cache
constexpr std::size_t kSmallestArray = std::size_t{128} << 20;
constexpr double kScalar = 3;

std::size_t array_bytes() {
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::max(kSmallestArray, kCachesFit * static_cast<std::size_t>(std::max(0L, cache)));
}

struct Slice {
  double* a;
  double* b;
  double* c;
  std::size_t count;
};

void copy_pass(const Slice& slice) {
  const double* __restrict from = slice.a;
  double* __restrict to = slice.c;
  for (std::size_t i = 0; i < slice.count; ++i) to[i] = from[i];
}

void triad_pass(const Slice& slice) {
  const double* __restrict b = slice.b;
  const double* __restrict c = slice.c;
  double* __restrict a = slice.a;
  for (std::size_t i = 0; i < slice.count; ++i) a[i] = b[i] + kScalar * c[i];
}

}  // namespace

Streaming measure_streaming(int threads) {
  const std::size_t bytes = array_bytes();
  const std::size_t count = bytes / sizeof(double) / static_cast<std::size_t>(threads);
  PrivateMemory memory[3];
  double* arrays[3];
  for (int i = 0; i < 3; ++i) arrays[i] = reinterpret_cast<double*>(memory[i].reserve(bytes));

  using Clock = std::chrono::steady_clock;
  Streaming result{threads, bytes};
  Clock::time_point started;
  double* recorded = nullptr;  // where the pass that ends now puts its bandwidth
  double moved = 0;
  std::barrier start(threads, [&]() noexcept { started = Clock::now(); });
  std::barrier finish(threads, [&]() noexcept {
    const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
    if (recorded != nullptr) *recorded = std::max(*recorded, moved / seconds);
  });
  const double elements = static_cast<double>(count) * threads;
  const auto body = [&](int thread) {
    const std::size_t first = count * static_cast<std::size_t>(thread);
    const Slice slice{arrays[0] + first, arrays[1] + first, arrays[2] + first, count};
    std::fill_n(slice.a, count, 1.0);
    std::fill_n(slice.b, count, 2.0);
    std::fill_n(slice.c, count, 0.0);
    for (int pass = 0; pass < 2 * kPasses; ++pass) {
      const bool copies = pass % 2 == 0;
      start.arrive_and_wait();
      if (thread == 0) {
        recorded = copies ? &result.copy : &result.triad;
        moved = elements * sizeof(double) * (copies ? 2 : 3);
      }
      copies ? copy_pass(slice) : triad_pass(slice);
      finish.arrive_and_wait();
    }
  };
  std::vector<std::jthread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(body, thread);
  body(0);
  others.clear();
  return result;
}

}  // namespace lockstep::bench
