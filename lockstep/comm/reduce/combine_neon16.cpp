// NEON on CPUs with instructions for 16-bit floats (FEAT_BF16 and FEAT_FHM) and atomic
// operations (FEAT_LSE).
#if defined(__aarch64__)
#define LOCKSTEP_VECTOR_BYTES 16
#include "lockstep/comm/reduce/kernels.inl"

namespace lockstep::reduce {

void combine_neon16(const KernelCall& call) { combine_vectors(call); }

}  // namespace lockstep::reduce
#endif
