#include "lockstep/base/system/cpu_features.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace lockstep {
namespace {

#if defined(__x86_64__)

bool request_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuFeatures detect_features() {
  CpuFeatures features;
  features.crc32c = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("f16c");
  features.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  features.avx512_bf16 = features.avx512 && __builtin_cpu_supports("avx512bf16");
  features.amx_bf16 =
      __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") && request_tiles();
  return features;
}

#elif defined(__aarch64__)

CpuFeatures detect_features() {
  const unsigned long first = ::getauxval(AT_HWCAP);
  const unsigned long second = ::getauxval(AT_HWCAP2);
  return {.crc32c = (first & HWCAP_CRC32) != 0,
          .neon = true,
          .neon_bf16 = (second & HWCAP2_BF16) != 0,
          .neon_f16_fma = (first & HWCAP_ASIMDFHM) != 0,
          .neon_atomics = (first & HWCAP_ATOMICS) != 0};
}

#else

CpuFeatures detect_features() { return {}; }

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures kFeatures = detect_features();
  return kFeatures;
}

}  // namespace lockstep
