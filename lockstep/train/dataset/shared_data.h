// Opens the data of a run on all workers.
#pragma once

#include <functional>
#include <string_view>

#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/stop_signal.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

// Thrown on every worker if the run is stopped while its data is prepared: there is nothing to save
// yet.
struct StoppedBeforeTheFirstStep {};

using Tell = std::function<void(std::string_view)>;

// The leader opens the data first; the others then find its token files. That can take hours, so
// the leader sends a message at each progress report of `open`, and no worker runs into
// comm.timeout. `notice` is called with the leader's progress. If one of them cannot open the data,
// all throw as in RunGroup::together().
Dataset open_shared_dataset(RunGroup& group, const StopSignal& stop, const Tell& notice,
                            const std::function<Dataset(const Tell&)>& open);

// The same for a rank of the group that needs no data, a server: returns when it is ready.
void await_shared_dataset(RunGroup& group);

}  // namespace lockstep::train
