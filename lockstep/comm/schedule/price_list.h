// Estimated costs of all algorithms of a collective: which is the cheapest at which size.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/schedule/cost.h"

namespace lockstep::schedule {

struct Price {
  const Algorithm* algorithm = nullptr;
  double seconds = 0;
};

// All algorithms of a collective that support the shape, the cheapest first, ties in the order of
// the registry. If shape.machines is empty, the topology's are used.
std::vector<Price> cheapest(Collective collective, double bytes, const Shape& shape,
                            const Topology& topology);

// The same for many sizes: profiles made once.
class PriceList {
 public:
  PriceList(Collective collective, const Shape& shape, const Topology& topology);
  std::vector<Price> at(double bytes) const;  // like cheapest()

  struct Entry {
    const Algorithm* algorithm = nullptr;
    Profile profile;
  };
  const std::vector<Entry>& entries() const { return entries_; }

  // Algorithms that do not support the shape, and why.
  struct Refusal {
    const Algorithm* algorithm = nullptr;
    std::string why;
  };
  const std::vector<Refusal>& refusals() const { return refusals_; }

  // The sizes up to `most_bytes` at which another algorithm becomes the cheapest: from `from` bytes
  // on it is `algorithm`. The first entry starts at 1.
  struct Reign {
    double from = 1;
    const Algorithm* algorithm = nullptr;
  };
  std::vector<Reign> reigns(double most_bytes) const;

 private:
  std::vector<Entry> entries_;
  std::vector<Refusal> refusals_;
};

}  // namespace lockstep::schedule
