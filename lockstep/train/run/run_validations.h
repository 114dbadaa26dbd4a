// The validations of a run, and what follows from their losses: whether the run may continue,
// whether a checkpoint is among the best, whether the run ends early.
//
// Called by all workers; where they do not wait for each other by the leader alone, which then
// neither saves the best checkpoints nor ends the run early.
#pragma once

#include <string>

#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/observe/observer.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/run/at_fault.h"
#include "lockstep/train/run/audience.h"
#include "lockstep/train/run/early_stopping.h"
#include "lockstep/train/run/saving.h"
#include "lockstep/train/stop_signal.h"
#include "lockstep/train/trainer/run_group.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

class RunValidations {
 public:
  // The parts of a run; all must outlive this.
  struct Parts {
    const RunOptions& options;
    const Audience& audience;
    const StopSignal& stop;
    RunGroup group;
    const CheckpointFolder& checkpoints;
    BatchSource& source;
    parallel::Strategy& strategy;
    Trainer& trainer;
    RunSaving& saving;
  };
  explicit RunValidations(const Parts& parts);

  // Counts the validations of the first `done` steps, of the leader's metrics.
  void resume(std::int64_t done);
  // Validates after a step: puts loss and time into the record.
  void take(StepRecord& record);
  // To be called after take(), when observers have the record. Throws
  // Error(kNonFinite) for a loss that is NaN or infinite. Returns whether the state is to be saved
  // because of its loss.
  bool follow(const StepRecord& record);

  // Whether the state is to be saved because of a loss that was taken before, if any.
  bool is_best(const StepRecord& record) {
    return parts_.strategy.in_lockstep() && parts_.saving.found_validation(record.validation_loss);
  }

  // Whether the run ends, though it has steps left.
  bool stops_early() const { return early_.stops(); }
  std::string why_it_stops() const { return early_.why(); }
  // Whether a stop signal cut one short.
  bool was_cut() const { return cut_; }

  RunAtFault at_fault();

 private:
  Parts parts_;
  EarlyStopping early_;
  bool cut_ = false;
};

}  // namespace lockstep::train
