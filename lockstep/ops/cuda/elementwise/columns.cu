#include "lockstep/ops/cuda/elementwise/columns.h"

#include "lockstep/ops/cuda/device/row_lanes.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

// Rows of elements, from the first column that is meant on.
template <class T>
struct Columns {
  T* first;
  std::int64_t width;  // of a row

  __device__ T* row(std::int64_t at) const { return first + at * width; }
};

template <class T>
Columns<T> columns_of(const ops::Heads& heads) {
  return {data_of<T>(heads.rows) + heads.first, heads.rows.shape()[1]};
}

template <class From, class To, int N, bool kAdds>
__global__ void __launch_bounds__(RowLanes::kThreads)
    copy_columns_kernel(RowLanes shape, Columns<const From> from, Columns<To> to, int packs) {
  const std::int64_t row = shape.row();
  if (row >= shape.rows) return;
  const From* x = from.row(row);
  To* y = to.row(row);
  for (int pack = shape.lane(); pack < packs; pack += shape.lanes) {
    Floats<N> value = load_floats<N>(x + pack * N);
    if constexpr (kAdds) {
      const Floats<N> before = load_floats<N>(y + pack * N);
#pragma unroll
      for (int e = 0; e < N; ++e) value[e] += before[e];
    }
    store_floats(y + pack * N, value);
  }
}

constexpr int kColumnPack = 8;  // in every type one vector of 16 bytes or two

bool allows_column_packs(const ops::Heads& heads) {
  return heads.first % kColumnPack == 0 && heads.rows.shape()[1] % kColumnPack == 0 &&
         reinterpret_cast<std::uintptr_t>(heads.rows.data()) % 16 == 0;
}

template <class From, class To, int N>
void launch_copy(const Context& context, const ops::CopyColumns& call) {
  const auto packs = static_cast<int>(call.columns / N);
  const RowLanes shape(call.from.rows.shape()[0], packs);
  const auto launch = [&](auto* kernel) {
    kernel<<<shape.blocks(), RowLanes::kThreads, 0, context.stream>>>(
        shape, columns_of<const From>(call.from), columns_of<To>(call.to), packs);
    check_launch("copy_columns");
  };
  if (call.accumulate) {
    launch(copy_columns_kernel<From, To, N, true>);
  } else {
    launch(copy_columns_kernel<From, To, N, false>);
  }
}

}  // namespace

void run(const Context& context, const ops::CopyColumns& call) {
  if (call.columns == 0 || call.from.rows.shape()[0] == 0) return;
  const bool vectors = call.columns % kColumnPack == 0 && allows_column_packs(call.from) &&
                       allows_column_packs(call.to);
  with_compute_type(call.from.rows.dtype(), [&]<class From>(TypeTag<From>) {
    with_compute_type(call.to.rows.dtype(), [&]<class To>(TypeTag<To>) {
      if (vectors) {
        launch_copy<From, To, kColumnPack>(context, call);
      } else {
        launch_copy<From, To, 1>(context, call);
      }
    });
  });
}

}  // namespace lockstep::cuda
