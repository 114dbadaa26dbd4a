#if defined(__x86_64__)
#define LOCKSTEP_VECTOR_BYTES 64
#include "lockstep/comm/reduce/kernels.inl"

namespace lockstep::reduce {

void combine_avx512(const KernelCall& call) { combine_vectors(call); }

}  // namespace lockstep::reduce
#endif
