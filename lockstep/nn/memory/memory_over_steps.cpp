#include "lockstep/nn/memory/memory_over_steps.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

namespace lockstep::nn {
namespace {

// By how much a class grows at each step: its bytes are the sums up to there.
struct Growth {
  std::string name;
  std::vector<std::int64_t> at;
};

class Growths {
 public:
  explicit Growths(int steps) : steps_(steps) {}

  void add(std::span<const Request> requests, std::string_view prefix) {
    for (const Request& request : requests) {
      Growth& growth = of(request.group, prefix);
      const auto bytes = static_cast<std::int64_t>(padded_bytes(request));
      growth.at[static_cast<std::size_t>(request.first_step)] += bytes;
      if (request.last_step + 1 < steps_) {
        growth.at[static_cast<std::size_t>(request.last_step) + 1] -= bytes;
      }
    }
  }

  // What lives all the time.
  void add_always(std::span<const Request> requests, std::string_view prefix) {
    for (const Request& request : requests) {
      of(request.group, prefix).at.front() += static_cast<std::int64_t>(padded_bytes(request));
    }
  }

  std::vector<MemoryOverSteps::Band> bands() && {
    std::vector<MemoryOverSteps::Band> bands;
    for (Growth& growth : all_) {
      MemoryOverSteps::Band band{std::move(growth.name), {}};
      std::int64_t bytes = 0;
      for (const std::int64_t more : growth.at) {
        bytes += more;
        band.bytes.push_back(static_cast<std::size_t>(bytes));
      }
      const bool is_empty =
          std::ranges::all_of(band.bytes, [](std::size_t one) { return one == 0; });
      if (!is_empty) bands.push_back(std::move(band));
    }
    return bands;
  }

 private:
  Growth& of(std::string_view group, std::string_view prefix) {
    constexpr std::string_view kActivations = "activations";
    const std::string_view kind = group.starts_with(kActivations) ? kActivations : group;
    const auto is_it = [&](const Growth& one) {
      return one.name.size() == prefix.size() + kind.size() && one.name.starts_with(prefix) &&
             one.name.ends_with(kind);
    };
    const auto found = std::ranges::find_if(all_, is_it);
    if (found != all_.end()) return *found;
    std::string name(prefix);
    name += kind;
    all_.push_back({std::move(name), std::vector<std::int64_t>(static_cast<std::size_t>(steps_))});
    return all_.back();
  }

  int steps_;
  std::vector<Growth> all_;
};

// What lives longest is drawn at the bottom.
void sort_bands(std::vector<MemoryOverSteps::Band>& bands) {
  constexpr std::string_view kOrder[] = {"parameters", "gathered", "gradients", "in flight",
                                         "optimizer"};
  constexpr std::string_view kHost = "host ";
  std::ranges::stable_sort(bands, {}, [&](const MemoryOverSteps::Band& band) {
    std::string_view name = band.name;
    const bool on_host = name.starts_with(kHost);
    if (on_host) name.remove_prefix(kHost.size());
    return std::pair(std::ranges::find(kOrder, name) - std::begin(kOrder), on_host);
  });
}

std::size_t sum_at(std::span<const MemoryOverSteps::Band> bands, std::size_t step) {
  std::size_t sum = 0;
  for (const MemoryOverSteps::Band& band : bands) sum += band.bytes[step];
  return sum;
}

}  // namespace

MemoryOverSteps memory_over_steps(const MemoryPlan& plan, std::size_t most_columns) {
  MemoryOverSteps made;
  made.blocks = static_cast<int>(plan.specs.size());
  const int steps = 2 * made.blocks + 1;
  Growths growths(steps);
  growths.add(plan.requests, "");
  growths.add(plan.symmetric_requests, "");
  growths.add_always(plan.outside, "");
  growths.add(plan.host_requests, "host ");
  growths.add(plan.host_symmetric_requests, "host ");
  growths.add_always(plan.host_outside, "host ");
  std::vector<MemoryOverSteps::Band> bands = std::move(growths).bands();
  sort_bands(bands);

  const auto all = static_cast<std::size_t>(steps);
  const std::size_t each = (all + most_columns - 1) / most_columns;
  for (std::size_t first = 0; first < all; first += each) {
    std::size_t most = first;
    for (std::size_t step = first; step < std::min(first + each, all); ++step) {
      if (sum_at(bands, step) > sum_at(bands, most)) most = step;
    }
    made.steps.push_back(static_cast<int>(most));
  }
  for (MemoryOverSteps::Band& band : bands) {
    MemoryOverSteps::Band shown{std::move(band.name), {}};
    for (const int step : made.steps)
      shown.bytes.push_back(band.bytes[static_cast<std::size_t>(step)]);
    made.bands.push_back(std::move(shown));
  }
  return made;
}

}  // namespace lockstep::nn
