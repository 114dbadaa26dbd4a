#include "lockstep/ops/cpu/isa.h"

#include <cstdlib>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::cpu {

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kNeon:
      return "neon";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
#if defined(__aarch64__)
  isas.push_back(Isa::kNeon);
#elif defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    isas.push_back(Isa::kAvx512);
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    isas.push_back(Isa::kAvx2);
  }
#endif
  isas.push_back(Isa::kScalar);
  return isas;
}

Isa chosen_isa() {
  const auto isas = available_isas();
  const char* forced = std::getenv("LOCKSTEP_KERNELS");
  if (forced == nullptr || *forced == '\0') return isas.front();
  std::string have;
  for (const Isa isa : isas) {
    if (name(isa) == forced) return isa;
    have += have.empty() ? "" : ", ";
    have += name(isa);
  }
  fail(ErrorCode::kUnsupported,
       "LOCKSTEP_KERNELS is '{}', which cannot run on this CPU; these can: {}", forced, have);
}

}  // namespace lockstep::cpu
