// Requests of the launcher that the ranks of an elastic job stop after a step, to begin in another
// number: see Survival::regroups.
#pragma once

#include "lockstep/train/run/survival.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

// Of one run. Its ranks agree with their next step whether one of them is asked.
class Regrouping {
 public:
  // `survival` is nullptr for a worker that does not outlive the loss of others.
  Regrouping(Survival* survival, RunGroup group) : survival_(survival), group_(group) {}

  // Whether there is a request that the workers have not declined.
  bool is_asked() const { return survival_ != nullptr && survival_->regroups > declined_; }
  // Called by all workers when they have stopped: whether only to regroup, and none was asked to
  // end.
  bool is_only_reason(bool asked_to_end) {
    return survival_ != nullptr && !group_.any(asked_to_end);
  }
  // Called by all workers, which continue as they are: the next generation would begin with an
  // older checkpoint. The request may not have reached every worker yet. Returns false.
  bool decline();

 private:
  Survival* survival_;
  RunGroup group_;
  int declined_ = 0;  // the last such request
};

}  // namespace lockstep::train
