#include "lockstep/nn/memory/recompute_footprint.h"

#include <algorithm>
#include <utility>

namespace lockstep::nn {
namespace {

// Requests of the device that hold what was in another tier.
std::vector<bool> are_returns(const MemoryPlan& plan) {
  std::vector<bool> are(plan.requests.size());
  for (const Absence& absence : plan.absences) are[absence.after] = true;
  return are;
}

// Elements that backward writes again before it begins, and those that it works in.
double backward_elements(const MemoryPlan& plan, std::size_t block) {
  double elements = 0;
  const BlockRequests& requests = plan.blocks[block];
  const std::vector<bool> returns = are_returns(plan);
  for (std::size_t t = 0; t < requests.backward.size(); ++t) {
    if (requests.backward[t] == requests.forward[t]) continue;
    if (requests.backward[t] == BlockRequests::kAbsent) continue;
    if (returns[requests.backward[t]]) continue;
    elements += static_cast<double>(plan.specs[block].tensors[t].shape.elements());
  }
  return elements;
}

}  // namespace

std::vector<double> recompute_costs(const MemoryPlan& plan, const MemoryPlan& none) {
  std::vector<double> costs;
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    const double again =
        std::max(backward_elements(plan, block) - backward_elements(none, block), 0.0);
    costs.push_back(plan.specs[block].recompute_flops + kElementFlops * again);
  }
  return costs;
}

Footprints::Footprints(const PerMode<MemoryPlan>& plans) : of_(plans[0].blocks.size()) {
  for (std::size_t mode = 0; mode < plans.size(); ++mode) read(plans[mode], plans[0], mode);
}

template <class FootprintOf>
std::size_t Footprints::most_alive_of(const FootprintOf& footprint_of) const {
  const std::size_t blocks = of_.size();
  std::size_t most = base_.back();
  std::size_t kept = 0;
  Footprint before;
  for (std::size_t block = 0; block < blocks; ++block) {
    const Footprint& each = footprint_of(block);
    kept += each.kept;
    most = std::max({most, base_[block] + kept + each.forward + before.leaves,
                     base_[2 * blocks - 1 - block] + kept + each.backward + before.comes});
    before = each;
  }
  return most + elsewhere_on_device_;
}

std::size_t Footprints::most_alive(const std::vector<Recompute>& choice) const {
  return most_alive_of(
      [&](std::size_t block) -> const Footprint& { return of_[block][index_of(choice[block])]; });
}

std::size_t Footprints::least_alive() const {
  return most_alive_of([&](std::size_t block) {
    Footprint least = of_[block].front();
    for (const Footprint& each : of_[block]) {
      least.kept = std::min(least.kept, each.kept);
      least.forward = std::min(least.forward, each.forward);
      least.backward = std::min(least.backward, each.backward);
      least.leaves = std::min(least.leaves, each.leaves);
      least.comes = std::min(least.comes, each.comes);
    }
    return least;
  });
}

void Footprints::read(const MemoryPlan& plan, const MemoryPlan& none, std::size_t mode) {
  const std::vector<double> costs = recompute_costs(plan, none);
  const std::vector<bool> returns = are_returns(plan);
  std::vector<bool> is_own(plan.requests.size());
  for (std::size_t block = 0; block < of_.size(); ++block) {
    Footprint& each = of_[block][mode];
    each.cost = costs[block];
    const auto add = [&](std::size_t request, std::size_t& to) {
      if (request == BlockRequests::kAbsent || is_own[request]) return;
      is_own[request] = true;
      to += padded_bytes(plan.requests[request]);
    };
    const BlockRequests& requests = plan.blocks[block];
    for (std::size_t t = 0; t < requests.forward.size(); ++t) {
      add(requests.forward[t],
          requests.forward[t] == requests.backward[t] ? each.kept : each.forward);
      add(requests.backward[t], each.backward);
      if (requests.backward[t] == BlockRequests::kAbsent || !returns[requests.backward[t]]) {
        continue;
      }
      each.leaves += padded_bytes(plan.requests[requests.forward[t]]);
      each.comes += padded_bytes(plan.requests[requests.backward[t]]);
    }
    add(requests.scratch_forward, each.forward);
    add(requests.scratch_backward, each.backward);
  }
  std::vector<std::size_t> base(2 * of_.size() + 1);
  for (std::size_t i = 0; i < plan.requests.size(); ++i) {
    const Request& request = plan.requests[i];
    for (int step = request.first_step; !is_own[i] && step <= request.last_step; ++step) {
      base[static_cast<std::size_t>(step)] += padded_bytes(request);
    }
  }
  // The other buffers depend slightly on modes (by when parameters are gathered): the least counts.
  const std::size_t on_device = plan.bytes(Tier::kDevice) - plan.layout.bytes;
  const std::size_t elsewhere = plan.bytes() - plan.bytes(Tier::kDevice);
  if (mode == 0) {
    base_ = std::move(base);
    elsewhere_on_device_ = on_device;
    elsewhere_ = elsewhere;
    return;
  }
  for (std::size_t step = 0; step < base.size(); ++step) {
    base_[step] = std::min(base_[step], base[step]);
  }
  elsewhere_on_device_ = std::min(elsewhere_on_device_, on_device);
  elsewhere_ = std::min(elsewhere_, elsewhere);
}

}  // namespace lockstep::nn
