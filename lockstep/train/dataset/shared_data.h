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

// The leader opens it first: what it makes of a text the others find. That can take hours, so as
// often as `open` tells of its progress the others hear from the leader, and nobody waits for
// longer than comm.timeout allows. `notice` hears of the leader's progress. Where one of them
// cannot open it all throw what RunGroup::together() says. A leader that was asked to stop may be
// gone without a word: one that was asked to stop as well takes that for StoppedBeforeTheFirstStep.
Dataset open_shared_dataset(RunGroup& group, const StopSignal& stop, const Tell& notice,
                            const std::function<Dataset(const Tell&)>& open);

// The same for a rank of the group that needs no data, a server: returns when it is ready.
void await_shared_dataset(RunGroup& group, const StopSignal& stop);

}  // namespace lockstep::train
