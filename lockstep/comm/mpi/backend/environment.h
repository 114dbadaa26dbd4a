// The MPI library: initialized once per process, called by one thread at a time, finalized at exit.
#pragma once

#include <mpi.h>

#include <mutex>
#include <string_view>

#include "lockstep/tensor/dtype.h"

namespace lockstep::mpi {

// Initializes MPI unless it is initialized, and checks that it matches this job. May be called
// again.
void initialize();

// Skips MPI_Finalize at exit, because it would wait for operations that never end.
void leave_unfinalized();

// Guards every call of MPI and the state that goes with it: MPI is initialized with
// MPI_THREAD_SERIALIZED.
std::mutex& mutex();

// Throws Error(kSystem) with MPI's error text unless `result` is MPI_SUCCESS.
void expect(int result, std::string_view what);

MPI_Datatype datatype(DType dtype);

}  // namespace lockstep::mpi
