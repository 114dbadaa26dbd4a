#include "lockstep/plan/pipeline/balance.h"

#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::plan {

std::vector<int> balanced_stages(std::span<const double> costs, int stages) {
  const auto blocks = static_cast<int>(costs.size());
  if (stages < 1 || stages > blocks) {
    fail(ErrorCode::kInvalidArgument, "{} blocks make 1 to {} stages, not {}", blocks, blocks,
         stages);
  }
  std::vector<double> sums = {0};  // of the first i blocks
  for (const double cost : costs) sums.push_back(sums.back() + cost);
  const auto run = [&](int first, int end) {
    return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(first)];
  };

  // largest[s][i] is the least largest run when s + 1 stages have the first i blocks; first[s][i]
  // is where the last of these runs begins.
  const auto width = static_cast<std::size_t>(blocks + 1);
  std::vector<std::vector<double>> largest(
      static_cast<std::size_t>(stages),
      std::vector<double>(width, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<int>> first(static_cast<std::size_t>(stages), std::vector<int>(width, 0));
  for (int end = 1; end <= blocks; ++end) largest[0][static_cast<std::size_t>(end)] = run(0, end);
  for (std::size_t stage = 1; stage < largest.size(); ++stage) {
    for (int end = static_cast<int>(stage) + 1; end <= blocks; ++end) {
      for (int begin = static_cast<int>(stage); begin < end; ++begin) {
        const double most =
            std::max(largest[stage - 1][static_cast<std::size_t>(begin)], run(begin, end));
        if (most >= largest[stage][static_cast<std::size_t>(end)]) continue;
        largest[stage][static_cast<std::size_t>(end)] = most;
        first[stage][static_cast<std::size_t>(end)] = begin;
      }
    }
  }

  std::vector<int> counts(static_cast<std::size_t>(stages));
  int end = blocks;
  for (std::size_t stage = counts.size(); stage-- > 0;) {
    const int begin = first[stage][static_cast<std::size_t>(end)];
    counts[stage] = end - begin;
    end = begin;
  }
  return counts;
}

}  // namespace lockstep::plan
