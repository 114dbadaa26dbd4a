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

// The leader opens the data first and may tokenise it; the others then find the result. Tokenising
// can take hours, so whenever `open` reports progress the leader sends a message to the others, and
// no rank waits for longer than comm.timeout. `notice` receives the leader's progress. Where one
// rank cannot open the data, all throw the error of RunGroup::together(). A leader that was asked
// to stop may disconnect without a message. A rank that was asked to stop as well then throws
// StoppedBeforeTheFirstStep. nullptr: requests to stop wait.
Dataset open_shared_dataset(RunGroup& group, const StopSignal* stop, const Tell& notice,
                            const std::function<Dataset(const Tell&)>& open);

// The same for a rank of the group that needs no data, a server: returns when it is ready.
void await_shared_dataset(RunGroup& group, const StopSignal* stop);

}  // namespace lockstep::train
