// The Communicator of C16 over an installed MPI: `mpirun -n 4 program` works.
//
// The MPI side is a module of its own, liblockstep_mpi.so, loaded only when it is asked for, so
// that programs neither link nor start an MPI they do not use. It is looked for at
// LOCKSTEP_MPI_MODULE (a file), then beside the executable and in the folder above it, then where
// this library is installed. Its errors are lockstep::Error like everyone's.
//
// What differs from the other implementations:
//  - Reductions run in MPI's own order: every rank gets the same bits, but not always those of
//    another implementation or number of ranks. f16 and bf16 are rounded at every hop, and a mean
//    divides after the sum, which may by then have overflowed.
//  - Memory from allocate() is plain: page-aligned, zeroed, private to the rank.
//  - Neither algorithms nor the transport can be forced; MPI selects its own.
//  - Operations advance while some thread is in a call of the communicator or of a Work.
//  - abort() and other failures reach a rank when it next waits or asks. A failed operation may
//    still write to its buffers: keep them until the process ends, which it then does without
//    MPI_Finalize, and mpirun says so. A rank that dies takes the job with it, as mpirun has it.
//  - The flight recorder of a rank is its own: where it fails it tells its last operations, and
//    not those of ranks that the error is about.
//  - Elements a block of gather, scatter, all_gather, reduce_scatter and all_to_all: below 2^31.
#pragma once

#include <chrono>
#include <climits>
#include <memory>
#include <string>

#include "lockstep/comm/communicator.h"

namespace lockstep {

struct MpiOptions {
  // Bounds every wait.
  std::chrono::nanoseconds deadline = std::chrono::minutes(5);
  // Ranks compare what they are about to do before they do it, which costs a small all_gather a
  // call. Without, ranks that disagree get whatever MPI makes of it. The same on all ranks.
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
