#include "lockstep/plan/pipeline/token_slices.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Times of slices in units of the granularity.
class SliceTimes {
 public:
  SliceTimes(int units, int granularity, const SliceTime& time)
      : units_(units), times_(static_cast<std::size_t>(units * units), kNever) {
    for (int context = 0; context < units; ++context) {
      for (int length = 1; context + length <= units; ++length) {
        times_[index(length, context)] = time(length * granularity, context * granularity);
      }
    }
  }

  int units() const { return units_; }
  double at(int length, int context) const { return times_[index(length, context)]; }

  std::vector<double> ascending() const {
    std::vector<double> sorted = times_;
    std::erase(sorted, kNever);
    std::ranges::sort(sorted);
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    return sorted;
  }

 private:
  std::size_t index(int length, int context) const {
    return static_cast<std::size_t>((length - 1) * units_ + context);
  }

  int units_;
  std::vector<double> times_;
};

// The slices with the least sum of times among those that take `limit` at most; none: infinite.
TokenSlices least_sum(const SliceTimes& times, double limit) {
  const auto units = static_cast<std::size_t>(times.units());
  std::vector<double> sum(units + 1, kNever);  // of the first i units
  std::vector<int> last(units + 1, 0);         // length of the slice that ends there
  sum[0] = 0;
  for (int end = 1; end <= times.units(); ++end) {
    const auto at = static_cast<std::size_t>(end);
    for (int length = 1; length <= end; ++length) {
      const double time = times.at(length, end - length);
      const double before = sum[at - static_cast<std::size_t>(length)];
      if (time > limit || before + time >= sum[at]) continue;
      sum[at] = before + time;
      last[at] = length;
    }
  }
  TokenSlices slices{.lengths = {}, .time = sum[units]};
  if (slices.time == kNever) return slices;
  for (std::size_t end = units; end > 0; end -= static_cast<std::size_t>(last[end])) {
    slices.lengths.push_back(last[end]);
  }
  std::ranges::reverse(slices.lengths);
  return slices;
}

void check_tokens(int tokens, int stages) {
  if (tokens < 1) fail(ErrorCode::kInvalidArgument, "{} tokens; 1 or more can be cut", tokens);
  if (stages < 1) fail(ErrorCode::kInvalidArgument, "{} stages; 1 or more are fine", stages);
}

}  // namespace

double time_of_slices(const std::vector<int>& lengths, int stages, const SliceTime& time) {
  double sum = 0;
  double largest = 0;
  int context = 0;
  for (const int length : lengths) {
    const double each = time(length, context);
    sum += each;
    largest = std::max(largest, each);
    context += length;
  }
  return sum + (stages - 1) * largest;
}

TokenSlices best_slices(int tokens, int stages, const SliceTime& time, int granularity) {
  check_tokens(tokens, stages);
  if (granularity < 1 || tokens % granularity != 0) {
    fail(ErrorCode::kInvalidArgument,
         "slices of multiples of {} tokens do not make {} tokens; choose a divisor of {}",
         granularity, tokens, tokens);
  }
  const SliceTimes times(tokens / granularity, granularity, time);
  TokenSlices best{.lengths = {}, .time = kNever};
  for (const double limit : times.ascending()) {
    const double waits = (stages - 1) * limit;
    if (waits >= best.time) break;
    TokenSlices slices = least_sum(times, limit);
    slices.time += waits;
    if (slices.time < best.time) best = std::move(slices);
  }
  for (int& length : best.lengths) length *= granularity;
  best.time = time_of_slices(best.lengths, stages, time);
  return best;
}

TokenSlices uniform_slices(int tokens, int slices, int stages, const SliceTime& time) {
  check_tokens(tokens, stages);
  if (slices < 1 || slices > tokens) {
    fail(ErrorCode::kInvalidArgument, "{} tokens make 1 to {} slices, not {}", tokens, tokens,
         slices);
  }
  TokenSlices uniform;
  for (int i = 0; i < slices; ++i) {
    uniform.lengths.push_back(tokens / slices + (i < tokens % slices ? 1 : 0));
  }
  uniform.time = time_of_slices(uniform.lengths, stages, time);
  return uniform;
}

}  // namespace lockstep::plan
