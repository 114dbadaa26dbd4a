// A part of lockstep in its own shared library, because it depends on a foreign one (MPI, CUDA). It
// is loaded on first use, so one build runs on machines with and without that library.
//
// A module is searched in this order: the file named by its environment variable, beside the
// executable, the folder above it, lib/lockstep of that folder, and where this library is
// installed. A module has its own copy of the lockstep library; the two exchange only objects with
// virtual functions, and Error.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

struct ModuleSpec {
  std::string_view name;          // "MPI", in errors
  std::string_view file;          // "liblockstep_mpi.so"
  const char* variable;           // "LOCKSTEP_MPI_MODULE"
  std::string_view how_to_build;  // follows "the MPI module was not found; "
  std::string_view libraries;     // follows "it needs libmpi.so.40, which is not installed; "
  // An extern "C" int() of the module. A module of another version is rejected.
  const char* version_symbol;
  int version;
};

class Module {
 public:
  // Throws Error(kUnsupported) that says what to do if the module cannot be loaded. A loaded module
  // is never unloaded, because objects that it made may still exist.
  explicit Module(const ModuleSpec& spec);

  const std::filesystem::path& file() const { return file_; }
  // An extern "C" function of the module. Throws Error(kUnsupported) if it does not exist.
  template <class Function>
  Function* function(const char* symbol) const {
    return reinterpret_cast<Function*>(find(symbol));
  }

 private:
  void* find(const char* symbol) const;

  std::string name_;
  std::filesystem::path file_;
  void* handle_ = nullptr;
};

}  // namespace lockstep
