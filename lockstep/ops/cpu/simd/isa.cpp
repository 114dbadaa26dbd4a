#include "lockstep/ops/cpu/simd/isa.h"

#include <cstdlib>
#include <string>

#include "lockstep/base/error.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

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
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

bool has_tiles() {
#if defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  static const bool granted = __builtin_cpu_supports("amx-tile") &&
                              __builtin_cpu_supports("amx-bf16") &&
                              ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
#else
  return false;
#endif
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
#if defined(__aarch64__)
  isas.push_back(Isa::kNeon);
#elif defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    if (has_tiles()) isas.push_back(Isa::kAmx);
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
  // The instructions for 16-bit floats serve the sums of collectives; here there is NEON.
  const std::string_view wanted = std::string_view(forced) == "neon16" ? "neon" : forced;
  std::string have;
  for (const Isa isa : isas) {
    if (name(isa) == wanted) return isa;
    have += have.empty() ? "" : ", ";
    have += name(isa);
  }
  fail(ErrorCode::kUnsupported,
       "LOCKSTEP_KERNELS is '{}', which cannot run on this CPU; these can: {}", forced, have);
}

}  // namespace lockstep::cpu
