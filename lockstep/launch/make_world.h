// The communicator of all ranks of a job.
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/options.h"
#include "lockstep/launch/world.h"

namespace lockstep {

// Finds this process's rank and the others from the environment that `lockstep launch`, torchrun,
// mpirun or Slurm gave it, and connects to them by the backend of the options. Without any of them
// the world is this process alone, or with the mpi backend what MPI says.
//
// With the mpi backend a forced algorithm or transport is Error(kUnsupported), and a place that
// differs from the one MPI gives this process Error(kInvalidArgument).
std::unique_ptr<Communicator> make_world(const CommOptions& options = comm_options());

// The same for a world that is already known. With the native backend a stop request ends the
// connecting, and later all communication of this rank, with Error(kAborted), while other threads
// are in it. Other ranks get no message.
std::unique_ptr<Communicator> make_world(const World& world, const CommOptions& options,
                                         const std::stop_token& stop = {});

// The address at which the other ranks reach this one: comm.interface; else the one that leads to
// the rendezvous; else, where MPI brings ranks of several nodes together, this node's name; else
// the loopback.
std::string reachable_host(const World& world, const CommOptions& options);

}  // namespace lockstep
