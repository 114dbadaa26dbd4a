#include "lockstep/ops/cuda/attention/mma_launch_backward.cuh"

namespace lockstep::cuda::attention::mma {

template void launch_backward<__half>(const Context&, const ops::AttentionBackward&);

}  // namespace lockstep::cuda::attention::mma
