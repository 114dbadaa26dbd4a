// The optional instructions of this CPU.
#pragma once

namespace lockstep {

struct CpuFeatures {
  bool crc32c = false;  // x86: SSE 4.2 and PCLMULQDQ; Arm: FEAT_CRC32

  // x86.
  bool avx2 = false;    // with FMA and F16C
  bool avx512 = false;  // F, BW, VL and DQ
  bool avx512_bf16 = false;
  // Tiles of bf16. Linux grants them to processes that request them: true means granted.
  bool amx_bf16 = false;

  // Arm.
  bool neon = false;
  bool neon_bf16 = false;     // FEAT_BF16
  bool neon_f16_fma = false;  // FEAT_FHM: products of f16 added to f32
  bool neon_atomics = false;  // FEAT_LSE
};

// Detected by the first call, which also requests AMX. Any thread may call it.
const CpuFeatures& cpu_features();

}  // namespace lockstep
