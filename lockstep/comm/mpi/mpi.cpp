#include "lockstep/comm/mpi/mpi.h"

#include "lockstep/base/module.h"
#include "lockstep/comm/mpi/module.h"

namespace lockstep {
namespace {

constexpr ModuleSpec kMpiModule{
    .name = "MPI",
    .file = mpi::kModuleFile,
    .variable = "LOCKSTEP_MPI_MODULE",
    .how_to_build =
        "install an MPI (Debian: libopenmpi-dev openmpi-bin), configure lockstep again "
        "with -DLOCKSTEP_MPI=ON and build",
    .libraries = "install the MPI that lockstep was built with (Debian: openmpi-bin)",
    .version_symbol = mpi::kVersionSymbol,
    .version = mpi::kModuleVersion,
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const MpiOptions& options) {
  static const Module module(kMpiModule);
  auto* const factory = module.function<mpi::FactoryFunction>(mpi::kFactorySymbol);
  return std::unique_ptr<Communicator>(factory(&options));
}

}  // namespace lockstep
