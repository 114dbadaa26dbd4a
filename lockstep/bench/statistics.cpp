#include "lockstep/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep::bench {

double quantile(std::span<const double> sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

double geometric_mean(std::span<const double> values) {
  if (values.empty()) return 0;
  double logs = 0;
  for (const double value : values) logs += std::log(value);
  return std::exp(logs / static_cast<double>(values.size()));
}

std::vector<double> slowest_rank(std::span<const std::vector<double>> seconds) {
  std::vector<double> slowest = seconds.front();
  for (const std::vector<double>& rank : seconds.subspan(1)) {
    for (std::size_t i = 0; i < slowest.size() && i < rank.size(); ++i) {
      slowest[i] = std::max(slowest[i], rank[i]);
    }
  }
  return slowest;
}

}  // namespace lockstep::bench
