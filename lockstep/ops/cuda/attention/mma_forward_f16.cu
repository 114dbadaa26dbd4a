#include "lockstep/ops/cuda/attention/mma_forward.cuh"

namespace lockstep::cuda::attention::mma {

template void launch_forward<__half>(const Context&, const ops::Attention&);

}  // namespace lockstep::cuda::attention::mma
