// A Communicator over an installed MPI: `mpirun -n 4 program` works.
//
// The MPI part is a separate module, liblockstep_mpi.so, loaded on first use (base/module.h), so
// programs do not link an MPI that they do not use.
//
// What differs from the other implementations:
//  - Reductions run in MPI's own order: every rank gets the same bits, but not always those of
//    another implementation or number of ranks. f16 and bf16 are rounded at every hop, and a mean
//    divides after the sum, which may by then have overflowed.
//  - Memory from allocate() is plain: page-aligned, zeroed, private to the rank.
//  - Neither algorithms nor the transport can be forced; MPI selects its own.
//  - Operations advance while some thread is in a call of the communicator or of a Work.
//  - abort() and other failures reach a rank at its next wait or query. A failed operation may
//    still write to its buffers: keep them until the process ends. It then ends without
//    MPI_Finalize, and mpirun reports that. mpirun ends the job when a rank dies.
//  - A rank that fails dumps only its own flight recorder, not those of the ranks at fault.
//  - A block of gather, scatter, all_gather, reduce_scatter and all_to_all has fewer than 2^31
//    elements.
#pragma once

#include <chrono>
#include <climits>
#include <memory>
#include <string>

#include "lockstep/comm/communicator.h"

namespace lockstep {

struct MpiOptions {
  // The limit of every wait.
  std::chrono::nanoseconds deadline = std::chrono::minutes(5);
  // Ranks compare every call before it starts, which costs a small all_gather per call. Without it,
  // the result of mismatched calls is undefined. Must be the same on all ranks.
  bool check = true;
  // The most elements given to MPI in one piece.
  int largest_piece = INT_MAX;
  // Where each rank's last operations are written when the group fails; empty: to stderr only.
  std::string recorder_dir;
};

// The group of all ranks that mpirun started (MPI_COMM_WORLD). Initialises MPI unless the program
// has; what was initialised here is finalised at exit. Throws Error(kUnsupported) that says what
// to install when there is no module, or when the ranks were started by another MPI's mpirun.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiOptions& options = {});

}  // namespace lockstep
