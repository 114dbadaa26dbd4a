// Which algorithm serves a call: what the caller or the configuration forces, else shared memory
// where all ranks share a machine, else the cheapest schedule for the links there are.
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

// What may be forced for a collective: kFused, then its schedules, the plainest first.
std::vector<std::string_view> algorithm_names(Collective collective);

// Error(kInvalidArgument) for a comm.algorithm that is neither auto nor one of these, with the
// nearest. To be called before ranks meet, so that a misspelt name costs nobody a wait.
void check_algorithms(const CommOptions& options);

// Error(kInvalidArgument) for a comm.grid that does not have all ranks of the world. In smaller
// groups the grid is chosen by their machines.
void check_grid(const CommOptions& options, int ranks);

class Selector {
 public:
  // `machines` of the members; `fused` whether all of them share memory.
  Selector(std::vector<int> machines, bool fused, const CommOptions& options, const Links& links);

  // Whether the call goes through shared memory; choose() would name kFused.
  bool is_fused(const Call& call) const;
  // The algorithm alone, / and with the figures that speak for it.
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
  bool flat_ = false;  // every rank is joined to every other by the outer link
  CommOptions options_;
  Links links_;
  schedule::Topology topology_;
  std::array<bool, kCollectives> fused_by_default_{};  // by collective
  // Filled as calls come up.
  mutable std::map<Collective, schedule::PriceList> prices_;
  mutable std::map<std::pair<Collective, double>, std::string> chosen_;  // by vector size
};

}  // namespace lockstep
