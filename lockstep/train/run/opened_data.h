// What a worker opens before its settings can be resolved (train/run/resolve.h): its data, and on
// the leader the run's folder.
#pragma once

#include <memory>
#include <optional>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/run/audience.h"
#include "lockstep/train/run_folder.h"
#include "lockstep/train/stop_signal.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

struct OpenedData {
  std::optional<RunFolder> folder;                         // the leader's
  std::shared_ptr<const data::Tokenizer> model_tokenizer;  // of the parameters it starts with
  Dataset dataset;

  // All ranks of the job, `everybody`, take part, so that none of them waits for longer than its
  // timeout; servers call await_shared_dataset() instead. Throws StoppedBeforeTheFirstStep if the
  // run is asked to stop meanwhile, and Error if data or folder cannot be opened. If the code takes
  // long to notice a stop request, the process ends without returning (StopDeadline). Without
  // `stop` requests to stop wait: there are steps to save.
  OpenedData(const RunOptions& options, RunGroup everybody, bool leads, const StopSignal* stop,
             const Audience& audience);
};

}  // namespace lockstep::train
