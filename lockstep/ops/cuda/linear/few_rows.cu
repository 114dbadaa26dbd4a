// A warp has kOutputs outputs, and `splits` warps of a block share the inputs of the same outputs.
// A lane takes vectors of 16 bytes of the weight, 32 * splits vectors apart, and loads kAhead of
// them before it multiplies. Rows of x come through the L1 cache. Lanes are summed in a butterfly
// and splits in order, so the order of a sum depends only on the shape of the weight.
#include <algorithm>
#include <type_traits>

#include "lockstep/ops/cuda/device/overlap.cuh"
#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/elementwise/activation.cuh"
#include "lockstep/ops/cuda/linear/few_rows.h"

namespace lockstep::cuda {
namespace {

constexpr std::int64_t kMostRows = 8;
constexpr int kWarps = 8;  // of a block
constexpr int kAhead = 4;

// Few enough for registers. More rows use more outputs, which share the loaded values of x.
template <int kRows>
inline constexpr int kOutputs = kRows <= 2 ? 2 : 4;

enum class After { kNothing, kGeluTanh, kGeluErf, kRelu };

template <class T>
struct Call {
  const T* x;
  const T* weight;
  const T* bias;      // may be null
  const T* residual;  // may be null, may be y
  T* y;
  T* z;  // may be null: the input of the activation
  int rows;
  int in;
  int out;
  int splits;
  After after;
};

template <class T>
__device__ __forceinline__ Pack<T, kPerVector<T>> load_once(const T* from) {
  const uint4 words = __ldcs(reinterpret_cast<const uint4*>(from));
  Pack<T, kPerVector<T>> pack;
  *reinterpret_cast<uint4*>(&pack) = words;
  return pack;
}

template <class T>
__device__ __forceinline__ float activated(After after, float z) {
  float unused;
  switch (after) {
    case After::kGeluTanh:
      return activate<ops::Activation::kGeluTanh, T>(z, unused);
    case After::kGeluErf:
      return activate<ops::Activation::kGeluErf, T>(z, unused);
    case After::kRelu:
      return activate<ops::Activation::kRelu, T>(z, unused);
    default:
      return z;
  }
}

template <class T, int kRows>
__global__ void __launch_bounds__(kWarps * 32) few_rows_kernel(Call<T> call) {
  constexpr int N = kPerVector<T>;
  constexpr int kOut = kOutputs<kRows>;
  __shared__ float sums[kWarps][kRows * kOut];
  start_next();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int split = warp % call.splits;
  const int first_out =
      (static_cast<int>(blockIdx.x) * (kWarps / call.splits) + warp / call.splits) * kOut;
  const int first = (split * 32 + lane) * N;
  const int stride = call.splits * 32 * N;
  const auto weight_at = [&](int output, int k) {
    return call.weight +
           static_cast<std::size_t>(first_out + output) * static_cast<std::size_t>(call.in) +
           static_cast<std::size_t>(k);
  };

  constexpr int kLineLanes = 128 / 16;  // lanes whose vectors are one line of the cache
  if (lane % kLineLanes == 0) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
#pragma unroll
      for (int o = 0; o < kOut; ++o) {
        const int k = first + u * stride;
        if (k < call.in && first_out + o < call.out) prefetch_l2(weight_at(o, k));
      }
    }
  }
  wait_for_previous();

  float all[kRows][kOut] = {};
  for (int base = first; base < call.in; base += kAhead * stride) {
    Pack<T, N> weights[kAhead][kOut];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
#pragma unroll
      for (int o = 0; o < kOut; ++o) {
        const int k = base + u * stride;
        if (k < call.in && first_out + o < call.out) {
          weights[u][o] = load_once(weight_at(o, k));
        } else {
          *reinterpret_cast<uint4*>(&weights[u][o]) = make_uint4(0, 0, 0, 0);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int k = base + u * stride;
      if (k >= call.in) break;
      Floats<N> w[kOut];
#pragma unroll
      for (int o = 0; o < kOut; ++o) w[o] = to_floats(weights[u][o]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int row = kRows == 1 ? 0 : min(r, call.rows - 1);
        const Floats<N> x = load_floats<N>(
            call.x + static_cast<std::size_t>(row) * static_cast<std::size_t>(call.in) +
            static_cast<std::size_t>(k));
#pragma unroll
        for (int o = 0; o < kOut; ++o) {
#pragma unroll
          for (int e = 0; e < N; ++e) all[r][o] = __fmaf_rn(x[e], w[o][e], all[r][o]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
      const float sum = warp_sum(all[r][o]);
      if (lane == 0) sums[warp][r * kOut + o] = sum;
    }
  }
  __syncthreads();
  if (split != 0 || lane >= kRows * kOut) return;
  const int row = lane / kOut, output = first_out + lane % kOut;
  if (row >= call.rows || output >= call.out) return;
  float value = 0;
  for (int s = 0; s < call.splits; ++s) value += sums[warp + s][lane];
  const std::size_t at = static_cast<std::size_t>(row) * static_cast<std::size_t>(call.out) +
                         static_cast<std::size_t>(output);
  if (call.bias != nullptr) value += to_float(call.bias[output]);
  if (call.residual != nullptr) value += to_float(call.residual[at]);
  if (call.after == After::kNothing) {
    call.y[at] = from_float<T>(value);
    return;
  }
  const T z = from_float<T>(value);
  if (call.z != nullptr) call.z[at] = z;
  call.y[at] = from_float<T>(activated<T>(call.after, to_float(z)));
}

// Depends only on the weight: as many warps as keep a large GPU busy, each with at least one
// vector.
int splits_of(std::int64_t in, std::int64_t out, int per_vector) {
  constexpr std::int64_t kEnoughWarps = 3072;
  const std::int64_t warps = (out + 1) / 2;
  const std::int64_t vectors = in / (32 * per_vector);
  int splits = 1;
  while (splits < kWarps && warps * splits < kEnoughWarps && 2 * splits <= vectors) splits *= 2;
  return splits;
}

template <class T, int kRows>
void launch(const Context& context, const Call<T>& call) {
  const int outputs = kOutputs<kRows> * (kWarps / call.splits);  // of a block
  const auto blocks = static_cast<unsigned>((call.out + outputs - 1) / outputs);
  launch_overlapped<Call<T>>(context, "few_rows", few_rows_kernel<T, kRows>, dim3(blocks),
                             kWarps * 32, 0, call);
}

struct Layer {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& bias;
  const Tensor& residual;
  const Tensor& y;
  const Tensor& z;
  After after;
};

void run(const Context& context, const Layer& layer) {
  with_compute_type(layer.x.dtype(), [&]<class T>(TypeTag<T>) {
    const std::int64_t rows = layer.x.shape()[0];
    const std::int64_t in = layer.x.shape()[1];
    const std::int64_t out = layer.weight.shape()[0];
    const Call<T> call{.x = data_of<const T>(layer.x),
                       .weight = data_of<const T>(layer.weight),
                       .bias = data_of<const T>(layer.bias),
                       .residual = data_of<const T>(layer.residual),
                       .y = data_of<T>(layer.y),
                       .z = data_of<T>(layer.z),
                       .rows = static_cast<int>(rows),
                       .in = static_cast<int>(in),
                       .out = static_cast<int>(out),
                       .splits = splits_of(in, out, kPerVector<T>),
                       .after = layer.after};
    if (rows <= 1) return launch<T, 1>(context, call);
    if (rows <= 2) return launch<T, 2>(context, call);
    if (rows <= 4) return launch<T, 4>(context, call);
    launch<T, 8>(context, call);
  });
}

bool begins_at_vectors(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0;
}

bool fits(const Tensor& x, const Tensor& weight) {
  constexpr std::int64_t kMostOutputs = std::int64_t{1} << 30;
  return few_rows_accepts(x.shape()[0], x.shape()[1], x.dtype()) && begins_at_vectors(x) &&
         begins_at_vectors(weight) && weight.shape()[0] < kMostOutputs;
}

After after(ops::Activation activation) {
  switch (activation) {
    case ops::Activation::kGeluTanh:
      return After::kGeluTanh;
    case ops::Activation::kGeluErf:
      return After::kGeluErf;
    default:
      return After::kRelu;
  }
}

}  // namespace

bool few_rows_accepts(std::int64_t rows, std::int64_t in, DType dtype) {
  constexpr std::int64_t kMostInputs = std::int64_t{1} << 24;
  const auto per_vector = static_cast<std::int64_t>(16 / size_of(dtype));
  return rows >= 1 && rows <= kMostRows && in >= 1 && in % per_vector == 0 && in < kMostInputs;
}

bool few_rows_accepts(const ops::Linear& call) { return fits(call.x, call.weight); }
bool few_rows_accepts(const ops::LinearActivation& call) {
  return fits(call.x, call.weight) && !ops::is_given(call.derivative);
}

void run_few_rows(const Context& context, const ops::Linear& call) {
  run(context, {call.x, call.weight, call.bias, call.residual, call.y, {}, After::kNothing});
}
void run_few_rows(const Context& context, const ops::LinearActivation& call) {
  run(context, {call.x, call.weight, call.bias, {}, call.y, call.z, after(call.activation)});
}

}  // namespace lockstep::cuda
