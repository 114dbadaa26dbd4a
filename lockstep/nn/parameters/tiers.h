// In which tier the parts of a replica lie (nn/memory/memory_plan.h).
//
// What lies elsewhere than on the device is there only while it is worked with. Parameters come
// block by block, as those do that workers shard (nn/memory/gather_plan.h); gradients are on
// the device from the first backward that adds to them to one after their own; what a block keeps
// for its backward leaves after its forward and comes back before its backward. The optimizer works
// where its states are. What lies in files goes by way of staging on the host.
//
// Where what computes reads the host's memory itself, parameters there need not come at all.
#pragma once

#include "lockstep/tensor/tier.h"

namespace lockstep::nn {

struct Tiers {
  Tier optimizer = Tier::kDevice;
  Tier gradients = Tier::kDevice;
  Tier parameters = Tier::kDevice;
  Tier activations = Tier::kDevice;
  // What lies in files comes and goes while other parts of it are worked with, and updates go on
  // beside backward where they can.
  bool overlaps = true;
  // Parameters on the host are computed with where they lie.
  bool in_place = false;

  bool any() const {
    return optimizer != Tier::kDevice || gradients != Tier::kDevice ||
           parameters != Tier::kDevice || activations != Tier::kDevice;
  }
  bool has_files() const {
    return optimizer == Tier::kFile || gradients == Tier::kFile || parameters == Tier::kFile ||
           activations == Tier::kFile;
  }
  // Where the optimizer computes: a file has no arithmetic, what lies there comes to the host.
  Tier update() const { return optimizer == Tier::kDevice ? Tier::kDevice : Tier::kHost; }
  friend bool operator==(const Tiers&, const Tiers&) = default;
};

}  // namespace lockstep::nn
