// The interface between liblockstep_mpi.so and the library.
#pragma once

#include "lockstep/comm/mpi/mpi.h"

namespace lockstep::mpi {

// Incremented whenever Communicator, Work, Call or MpiOptions change their layout: a module of
// another version is rejected.
inline constexpr int kModuleVersion = 4;
inline constexpr char kModuleFile[] = "liblockstep_mpi.so";

// extern "C" in the module. The factory's result belongs to the caller; it throws Error.
inline constexpr char kVersionSymbol[] = "lockstep_mpi_version";
inline constexpr char kFactorySymbol[] = "lockstep_mpi_communicator";
using FactoryFunction = Communicator*(const MpiOptions*);

}  // namespace lockstep::mpi
