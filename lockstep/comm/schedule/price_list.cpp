#include "lockstep/comm/schedule/price_list.h"

#include <algorithm>

namespace lockstep::schedule {

std::vector<Price> cheapest(Collective collective, double bytes, const Shape& shape,
                            const Topology& topology) {
  return PriceList(collective, shape, topology).at(bytes);
}

PriceList::PriceList(Collective collective, const Shape& shape, const Topology& topology) {
  Shape complete = shape;
  if (complete.machines.empty()) complete.machines = topology.machines;
  for (const Algorithm& algorithm : algorithms(collective)) {
    if (const auto why = algorithm.refuses(complete)) {
      refusals_.push_back({&algorithm, *why});
      continue;
    }
    std::string why;
    if (auto profile = profile_of(algorithm, complete, topology, why)) {
      entries_.push_back({&algorithm, std::move(*profile)});
    } else {
      refusals_.push_back({&algorithm, why});
    }
  }
}

std::vector<Price> PriceList::at(double bytes) const {
  std::vector<Price> prices;
  for (const Entry& entry : entries_) {
    prices.push_back({entry.algorithm, entry.profile.seconds(bytes)});
  }
  if (prices.empty()) return prices;
  // What differs by less than rounding costs the same.
  constexpr double kSame = 1 + 1e-9;
  const double least =
      std::ranges::min(prices, {}, [](const Price& price) { return price.seconds; }).seconds;
  std::ranges::stable_sort(prices, {}, [&](const Price& price) {
    return price.seconds <= least * kSame ? least : price.seconds;
  });
  return prices;
}

std::vector<PriceList::Reign> PriceList::reigns(double most_bytes) const {
  constexpr double kStep = 1.1;
  constexpr double kPrecision = 1.0005;
  const auto winner = [&](double bytes) { return at(bytes).front().algorithm; };
  std::vector<Reign> found{{1, winner(1)}};
  for (double low = 1; low < most_bytes; low *= kStep) {
    const double high = std::min(low * kStep, most_bytes);
    const Algorithm* next = winner(high);
    if (next == found.back().algorithm) continue;
    double before = low;
    double after = high;
    while (after > before * kPrecision) {
      const double middle = (before + after) / 2;
      (winner(middle) == found.back().algorithm ? before : after) = middle;
    }
    found.push_back({after, next});
  }
  return found;
}

}  // namespace lockstep::schedule
