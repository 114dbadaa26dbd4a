#include "lockstep/parallel/compression/kernels.h"

#include "lockstep/comm/reduce/combine.h"

namespace lockstep::parallel {

const CompressionKernels& compression_kernels(std::string_view set) {
#if defined(__x86_64__)
  if (set == "avx512") return avx512::kernels;
  if (set == "avx2") return avx2::kernels;
#endif
  static_cast<void>(set);  // elsewhere the compiler's own instructions have vectors
  return plain::kernels;
}

const CompressionKernels& compression_kernels() { return compression_kernels(kernel_set()); }

}  // namespace lockstep::parallel
