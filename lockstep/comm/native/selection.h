// Selects the algorithm of a call: the one that the caller or the configuration forces, else shared
// memory if all ranks share a node, else the schedule with the lowest estimated cost on the links.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/native/links.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/schedule/price_list.h"
#include "lockstep/comm/schedule/schedule.h"

namespace lockstep {

// The name under which the shared-memory collectives can be forced.
inline constexpr std::string_view kFused = "fused";

// The algorithms that may be forced for a collective: kFused, then its schedules, the simplest
// first.
std::vector<std::string_view> algorithm_names(Collective collective);

// Throws Error(kInvalidArgument), with the nearest name, for a comm.algorithm that is neither auto
// nor one of these. Call it before the rendezvous, so that a misspelt name fails at once.
void check_algorithms(const CommOptions& options);

// Throws Error(kInvalidArgument) for a comm.grid that does not cover all ranks of the world. In
// smaller groups the grid is chosen by their nodes.
void check_grid(const CommOptions& options, int ranks);

class Selector {
 public:
  // `machines` are the nodes of the members; `fused`: all of them share memory.
  Selector(std::vector<int> machines, bool fused, const CommOptions& options, const Links& links);

  // Whether the call uses the shared-memory collectives (kFused).
  bool is_fused(const Call& call) const;
  // The algorithm alone, / and with the estimated costs.
  std::string algorithm(const Call& call) const;
  Choice choose(const Call& call) const;

  const schedule::Shape& shape() const { return shape_; }
  const Links& links() const { return links_; }

 private:
  std::string_view forced(const Call& call) const;
  std::vector<schedule::Price> ranking(const Call& call) const;

  schedule::Shape shape_;
  bool fused_;
  bool several_per_machine_ = false;
  bool flat_ = false;  // all pairs of ranks use the outer link
  CommOptions options_;
  Links links_;
  schedule::Topology topology_;
  std::array<bool, kCollectives> fused_by_default_{};  // by collective
  // Filled on first use.
  mutable std::map<Collective, schedule::PriceList> prices_;
  mutable std::map<std::pair<Collective, double>, std::string> chosen_;  // by vector size
};

}  // namespace lockstep
