// Runs test bodies on ranks of whichever backend is under test.
//
// LOCKSTEP_TEST_WORLD=threads (the default): each body runs on fresh ranks that are threads.
// LOCKSTEP_TEST_WORLD=processes: this process is one rank of a world started by a launcher or by
// mpirun, and every rank runs the same tests in the same order.
// LOCKSTEP_TEST_DEVICE=cuda:0: data goes through the memory of that GPU
// (tests/comm/through_device.h).
// LOCKSTEP_TEST_DEVICE_BACKEND: what moves it there: native (the default), nccl, hierarchical, or
// one of the last two with -tree, which sums in the order of a tree. NCCL takes ranks that share a
// GPU only as processes.
#pragma once

#include <functional>

#include "lockstep/comm/communicator.h"

namespace lockstep::testing {

bool ranks_are_processes();

// The most ranks a body can be given.
int most_ranks();

// Runs the body on `ranks` ranks and returns when all have ended. Processes beyond `ranks` wait.
void on_ranks(int ranks, const std::function<void(Communicator&)>& body);

// The body on 1, 2, ... most_ranks() ranks.
void on_every_size(const std::function<void(Communicator&)>& body);

// What not every backend has: algorithms that a caller can choose, and reductions of the caller.
inline bool takes_user_operations(const Communicator& comm) {
  return comm.backend() != "cuda" && comm.backend() != "nccl" && comm.backend() != "hierarchical";
}
inline bool has_schedules(const Communicator& comm) {
  return comm.backend() != "mpi" && takes_user_operations(comm);
}

}  // namespace lockstep::testing
