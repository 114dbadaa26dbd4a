// The tiers of a replica's states (nn/memory/memory_plan.h).
//
// Offloaded tensors are on the device only while they are used. Parameters are fetched block by
// block, like sharded ones (nn/memory/gather_plan.h); gradients are on the device from the first
// backward that adds to them until one step after their own; kept activations leave after a block's
// forward and return before its backward. The optimizer runs in the tier of its states. Files go
// through staging on the host.
//
// If the device can read host memory, parameters there need not be copied.
#pragma once

#include "lockstep/tensor/tier.h"

namespace lockstep::nn {

struct Tiers {
  Tier optimizer = Tier::kDevice;
  Tier gradients = Tier::kDevice;
  Tier parameters = Tier::kDevice;
  Tier activations = Tier::kDevice;
  // Transfers to and from files overlap with compute, and updates with backward where possible.
  bool overlaps = true;
  // Parameters on the host are used in place.
  bool in_place = false;
  // The update of a step is computed during the next one, which uses the parameters before it.
  bool delayed_update = false;

  bool any() const {
    return optimizer != Tier::kDevice || gradients != Tier::kDevice ||
           parameters != Tier::kDevice || activations != Tier::kDevice;
  }
  bool has_files() const {
    return optimizer == Tier::kFile || gradients == Tier::kFile || parameters == Tier::kFile ||
           activations == Tier::kFile;
  }
  // Where the optimizer computes: on the host for states in files.
  Tier update() const { return optimizer == Tier::kDevice ? Tier::kDevice : Tier::kHost; }
  friend bool operator==(const Tiers&, const Tiers&) = default;
};

}  // namespace lockstep::nn
