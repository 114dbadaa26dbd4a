// A part of lockstep that lies in a shared library of its own, because it needs a foreign one (an
// MPI, CUDA): it is found and loaded when it is first asked for, so that one build of everything
// else runs on machines with and without.
//
// A module is looked for in the file that its environment variable names, then beside the
// executable and in the folder above it, then in lib/lockstep of that folder, then where this
// library is installed. Its copy of the library is its own; what the two hand each other are
// objects with virtual functions, and Error.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

struct ModuleSpec {
  std::string_view name;          // "MPI": the module's, in errors
  std::string_view file;          // "liblockstep_mpi.so"
  const char* variable;           // "LOCKSTEP_MPI_MODULE"
  std::string_view how_to_build;  // follows "the MPI module was not found; "
  std::string_view libraries;     // the end of "it needs libmpi.so.40, which is not here; "
  // An extern "C" int() of the module: a module of another version is refused, not trusted.
  const char* version_symbol;
  int version;
};

class Module {
 public:
  // Throws Error(kUnsupported) that says what to do where there is none that can be loaded. What
  // was loaded stays for good: its code runs until the last object that it made is gone.
  explicit Module(const ModuleSpec& spec);

  const std::filesystem::path& file() const { return file_; }
  // An extern "C" function of the module; throws Error(kUnsupported) where it has none such.
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
