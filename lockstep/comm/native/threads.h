// Ranks as threads of one process.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/options.h"

namespace lockstep {

// A communicator for each of `ranks` ranks; each must be used by its own thread. All must be
// destroyed, each by its thread or by the caller after the threads have ended.
std::vector<std::unique_ptr<Communicator>> make_thread_world(
    int ranks, const CommOptions& options = comm_options());

// Runs `body` once per rank, each in its own thread, and waits for all. If a body throws, the
// communicators of the others are aborted and the first error is rethrown.
void run_threads(int ranks, const std::function<void(Communicator&)>& body,
                 const CommOptions& options = comm_options());

}  // namespace lockstep
