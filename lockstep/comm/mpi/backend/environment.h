// MPI as a whole: started once a process, entered by one thread at a time, ended at exit.
#pragma once

#include <mpi.h>

#include <mutex>
#include <string_view>

#include "lockstep/tensor/dtype.h"

namespace lockstep::mpi {

// Initialises MPI if nobody has and checks that it fits this job. May be called again.
void initialize();

// From now on MPI_Finalize at exit would wait for operations that will never end: leave it out.
void leave_unfinalized();

// Held around every call of MPI and around the state that goes with it; MPI is asked for no more
// than MPI_THREAD_SERIALIZED.
std::mutex& mutex();

// Throws Error(kSystem) with MPI's own words unless `result` is MPI_SUCCESS.
void expect(int result, std::string_view what);

MPI_Datatype datatype(DType dtype);

}  // namespace lockstep::mpi
