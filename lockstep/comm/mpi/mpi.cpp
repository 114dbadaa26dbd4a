#include "lockstep/comm/mpi/mpi.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/comm/mpi/module.h"

namespace lockstep {
namespace {

using std::filesystem::path;

std::vector<path> candidates() {
  if (const char* file = std::getenv("LOCKSTEP_MPI_MODULE"); file != nullptr && *file != '\0') {
    return {file};
  }
  std::vector<path> found;
  std::error_code no_proc;
  const path executable = std::filesystem::read_symlink("/proc/self/exe", no_proc);
  if (!no_proc) {
    const path folder = executable.parent_path();
    found.push_back(folder / mpi::kModuleFile);
    found.push_back(folder.parent_path() / mpi::kModuleFile);
    found.push_back(folder.parent_path() / "lib" / "lockstep" / mpi::kModuleFile);
  }
  found.push_back(path(LOCKSTEP_MODULE_DIR) / mpi::kModuleFile);
  return found;
}

path find_module() {
  std::string tried;
  for (const path& candidate : candidates()) {
    std::error_code unreadable;
    if (std::filesystem::is_regular_file(candidate, unreadable)) return candidate;
    tried += fmt::format("\n  {}", candidate.string());
  }
  fail(ErrorCode::kUnsupported,
       "there is no MPI module; install an MPI (Debian: libopenmpi-dev openmpi-bin), configure "
       "lockstep again with -DLOCKSTEP_MPI=ON and build, or name the module in "
       "LOCKSTEP_MPI_MODULE. Looked for:{}",
       tried);
}

// The module stays loaded for good: its code runs until the last communicator is gone.
void* load_module() {
  const path file = find_module();
  void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (module == nullptr) {
    fail(ErrorCode::kUnsupported, "the MPI module could not be loaded: {}", dlerror());
  }
  auto* version = reinterpret_cast<mpi::VersionFunction*>(dlsym(module, mpi::kVersionSymbol));
  if (version == nullptr || version() != mpi::kModuleVersion) {
    fail(ErrorCode::kUnsupported,
         "{} was built for another version of lockstep; build it again together with this one",
         file.string());
  }
  return module;
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const MpiOptions& options) {
  static void* module = load_module();
  auto* factory = reinterpret_cast<mpi::FactoryFunction*>(dlsym(module, mpi::kFactorySymbol));
  if (factory == nullptr) {
    fail(ErrorCode::kUnsupported, "the MPI module has no {}; build it again", mpi::kFactorySymbol);
  }
  return std::unique_ptr<Communicator>(factory(&options));
}

}  // namespace lockstep
