#include "lockstep/ops/cpu/gemm/backend/onednn_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::cpu::gemm {
namespace {

// About as long as our own threads spin (ops/cpu/team/team.h). What the user has set stays.
void let_threads_spin_shortly() {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "1000", 0);
}

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

const OnednnLibrary* load() {
  static OnednnLibrary library;
  let_threads_spin_shortly();
  // The version that the headers describe; it stays loaded for good.
  const std::string file = "libdnnl.so." + std::to_string(DNNL_VERSION_MAJOR);
  void* loaded = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (loaded == nullptr) return nullptr;
#define LOCKSTEP_FIND(name) \
  if (!find(loaded, "dnnl_" #name, library.name)) return nullptr;
  LOCKSTEP_ONEDNN_FUNCTIONS(LOCKSTEP_FIND)
#undef LOCKSTEP_FIND
  // A library that was built for other threads than OpenMP's has none of this.
  if (!find(loaded, "omp_set_num_threads", library.omp_set_num_threads)) return nullptr;
  return &library;
}

}  // namespace

void OnednnLibrary::expect(dnnl_status_t status, const char* what) const {
  if (status == dnnl_success) return;
  fail(ErrorCode::kUnsupported, "oneDNN could not {}: {}; set LOCKSTEP_ONEDNN=0 to run without it",
       what, status2str(status));
}

const OnednnLibrary* onednn_library() {
  static const OnednnLibrary* library = load();
  return library;
}

}  // namespace lockstep::cpu::gemm
