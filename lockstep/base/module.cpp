#include "lockstep/base/module.h"

#include <dlfcn.h>
#include <elf.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using std::filesystem::path;

std::vector<path> candidates(const ModuleSpec& spec) {
  if (const char* file = std::getenv(spec.variable); file != nullptr && *file != '\0') {
    return {file};
  }
  std::vector<path> found;
  std::error_code no_proc;
  const path executable = std::filesystem::read_symlink("/proc/self/exe", no_proc);
  if (!no_proc) {
    const path folder = executable.parent_path();
    found.push_back(folder / spec.file);
    found.push_back(folder.parent_path() / spec.file);
    found.push_back(folder.parent_path() / "lib" / "lockstep" / spec.file);
  }
  found.push_back(path(LOCKSTEP_MODULE_DIR) / spec.file);
  return found;
}

path find_file(const ModuleSpec& spec) {
  std::string tried;
  for (const path& candidate : candidates(spec)) {
    std::error_code unreadable;
    if (std::filesystem::is_regular_file(candidate, unreadable)) return candidate;
    tried += fmt::format("\n  {}", candidate.string());
  }
  fail(ErrorCode::kUnsupported,
       "the {} module was not found; {}, or set {} to its path. Searched:{}", spec.name,
       spec.how_to_build, spec.variable, tried);
}

// The library that the loader missed, where that is what it says:
// "libmpi.so.40: cannot open shared object file: No such file or directory".
std::optional<std::string_view> missing_library(std::string_view loader_says) {
  const auto end = loader_says.find(": cannot open shared object file");
  if (end == std::string_view::npos) return std::nullopt;
  return loader_says.substr(0, end);
}

// The loader maps what the headers of a file promise and dies where the file is shorter. A shared
// library ends with the table of its sections; whatever is no library is left to the loader.
void check_whole(const ModuleSpec& spec, const path& file) {
  std::ifstream stream(file, std::ios::binary);
  Elf64_Ehdr header{};
  if (!stream.read(reinterpret_cast<char*>(&header), sizeof header)) return;
  if (std::string_view(reinterpret_cast<const char*>(header.e_ident), SELFMAG) != ELFMAG) return;
  std::error_code unreadable;
  const std::uintmax_t bytes = std::filesystem::file_size(file, unreadable);
  const std::uintmax_t sections = std::uintmax_t{header.e_shnum} * header.e_shentsize;
  if (unreadable || (header.e_shoff <= bytes && sections <= bytes - header.e_shoff)) return;
  fail(ErrorCode::kUnsupported, "the {} module {} is truncated: it has {} bytes; build it again",
       spec.name, file.string(), bytes);
}

}  // namespace

Module::Module(const ModuleSpec& spec) : name_(spec.name), file_(find_file(spec)) {
  check_whole(spec, file_);
  handle_ = dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle_ == nullptr) {
    const std::string why = dlerror();
    const auto missing = missing_library(why);
    if (missing && *missing != file_.native()) {
      fail(ErrorCode::kUnsupported,
           "the {} module {} could not be loaded: it needs {}, which is not installed; {}", name_,
           file_.string(), *missing, spec.libraries);
    }
    fail(ErrorCode::kUnsupported, "the {} module could not be loaded: {}", name_, why);
  }
  auto* version = reinterpret_cast<int (*)()>(dlsym(handle_, spec.version_symbol));
  if (version == nullptr || version() != spec.version) {
    fail(ErrorCode::kUnsupported,
         "{} was built for another version of lockstep; build it again together with this one",
         file_.string());
  }
}

void* Module::find(const char* symbol) const {
  void* const found = dlsym(handle_, symbol);
  if (found == nullptr) {
    fail(ErrorCode::kUnsupported, "the {} module {} has no {}; build it again", name_,
         file_.string(), symbol);
  }
  return found;
}

}  // namespace lockstep
