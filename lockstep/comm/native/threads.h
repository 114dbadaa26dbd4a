// Ranks as threads of one process.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/options.h"

namespace lockstep {

// A communicator for each of `ranks` ranks; each is meant for a thread of its own. All must be
// destroyed, each by its thread or by the caller after the threads have ended.
std::vector<std::unique_ptr<Communicator>> make_thread_world(
    int ranks, const CommOptions& options = comm_options());

// Runs `body` once per rank, each in a thread of its own, and waits for all. When bodies throw, the
// communicators of the others are aborted and the first error is thrown again.
void run_threads(int ranks, const std::function<void(Communicator&)>& body,
                 const CommOptions& options = comm_options());

}  // namespace lockstep
