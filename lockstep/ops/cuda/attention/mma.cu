#include "lockstep/ops/cuda/attention/mma.h"

#include <cmath>

#include "lockstep/ops/cuda/attention/mma_forward.cuh"
#include "lockstep/ops/cuda/attention/mma_launch_backward.cuh"

namespace lockstep::cuda::attention {
namespace mma {

extern template void launch_forward<__nv_bfloat16>(const Context&, const ops::Attention&);
extern template void launch_forward<__half>(const Context&, const ops::Attention&);
extern template void launch_backward<__nv_bfloat16>(const Context&, const ops::AttentionBackward&);
extern template void launch_backward<__half>(const Context&, const ops::AttentionBackward&);

namespace {

bool shape_fits(const Context& context, const ops::AttentionShape& shape, float scale) {
  const bool half = shape.dtype == DType::kBF16 || shape.dtype == DType::kF16;
  const bool some = shape.batch > 0 && shape.queries > 0 && shape.keys > 0;
  // The largest score is that of the largest product.
  const bool positive = scale > 0 && std::isfinite(scale);
  return context.capability >= 80 && half && some && positive && shape.head_size <= 128;
}

template <class... Rows>
bool in_sixteen_bytes(std::int64_t head_size, const Rows&... rows) {
  return (aligned(rows, head_size, 8) && ...);
}

}  // namespace
}  // namespace mma

bool mma_accepts(const Context& context, const ops::Attention& call) {
  const std::int64_t size = call.shape.head_size;
  if (!mma::shape_fits(context, call.shape, call.scale) || ops::is_given(call.probabilities)) {
    return false;
  }
  if (call.softcap > 0 && call.dropout.probability > 0) return false;
  std::size_t bytes = 0;
  mma::with_head_size(size, [&]<int kHeadSize>(std::integral_constant<int, kHeadSize>) {
    bytes = mma::ForwardTiles<kHeadSize>::kSharedBytes;
  });
  return bytes <= context.shared_memory &&
         mma::in_sixteen_bytes(size, call.q, call.k, call.v, ops::Heads{call.out, 0});
}

bool mma_accepts(const Context& context, const ops::AttentionBackward& call) {
  const std::int64_t size = call.shape.head_size;
  if (!mma::shape_fits(context, call.shape, call.scale)) return false;
  if (call.softcap > 0 && call.dropout.probability > 0) return false;
  std::size_t bytes = 0;
  mma::with_head_size(size, [&]<int kHeadSize>(std::integral_constant<int, kHeadSize>) {
    const std::size_t keys = mma::KeysTiles<kHeadSize>::kSharedBytes;
    const std::size_t queries =
        mma::QueriesTiles<kHeadSize>::shared_bytes(call.shape.distances > 0);
    bytes = keys > queries ? keys : queries;
  });
  return bytes <= context.shared_memory &&
         mma::in_sixteen_bytes(size, call.q, call.k, call.v, ops::Heads{call.dout, 0}, call.dq,
                               call.dk, call.dv);
}

void run_mma(const Context& context, const ops::Attention& call) {
  mma::with_half_type(call.shape.dtype, [&]<class T>(T) { mma::launch_forward<T>(context, call); });
}

void run_mma(const Context& context, const ops::AttentionBackward& call) {
  mma::with_half_type(call.shape.dtype,
                      [&]<class T>(T) { mma::launch_backward<T>(context, call); });
}

}  // namespace lockstep::cuda::attention
