// A thread takes kUnroll packs of N gates with their ups, which are one width further in the same
// row, and loads all of them before it computes. Packs are numbered through all rows.
#include "lockstep/ops/cuda/elementwise/swiglu.h"

#include "lockstep/ops/cuda/device/overlap.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/elementwise/activation.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 2;

// Where a pack lies: in y or dy, and its gates in gate_up.
struct Place {
  std::size_t half;
  std::size_t gates;
};

// Index has 32 bits where that is enough, because 64-bit divisions are slow.
template <int N, class Index>
__device__ __forceinline__ Place place_of(Index pack, Index packs_per_row, std::size_t width) {
  const Index row = pack / packs_per_row;
  const std::size_t half = std::size_t{pack} * N;
  return {half, half + std::size_t{row} * width};
}

template <ops::Gate kGate, class T>
__device__ __forceinline__ float open_gate(float gate, float& slope) {
  if constexpr (kGate == ops::Gate::kSilu) {
    return silu<kExponentialFor<T>>(gate, slope);
  } else {
    static_assert(kGate == ops::Gate::kGeluTanh);
    return gelu_tanh<kExponentialFor<T>>(gate, slope);
  }
}

template <ops::Gate kGate, class T, int N, class Index>
__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(const T* gate_up, T* y, Index packs, Index packs_per_row, std::size_t width) {
  start_next();
  wait_for_previous();
  const Index first = Index{blockIdx.x} * (kThreads * kUnroll) + threadIdx.x;
  Pack<T, N> gates[kUnroll], ups[kUnroll];
  Place at[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const Index pack = first + static_cast<Index>(u * kThreads);
    if (pack < packs) {
      at[u] = place_of<N>(pack, packs_per_row, width);
      gates[u] = load_pack<N>(gate_up + at[u].gates);
      ups[u] = load_pack<N>(gate_up + at[u].gates + width);
    }
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (first + static_cast<Index>(u * kThreads) < packs) {
      const Floats<N> gate = to_floats(gates[u]), up = to_floats(ups[u]);
      Floats<N> result;
#pragma unroll
      for (int e = 0; e < N; ++e) {
        float unused;
        result[e] = open_gate<kGate, T>(gate[e], unused) * up[e];
      }
      store_floats(y + at[u].half, result);
    }
  }
}

// dgate_up may be gate_up: a thread overwrites only what it has read itself.
template <ops::Gate kGate, class T, int N, class Index>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(const T* gate_up, const T* dy, T* dgate_up, Index packs,
                           Index packs_per_row, std::size_t width) {
  start_next();
  wait_for_previous();
  const Index first = Index{blockIdx.x} * (kThreads * kUnroll) + threadIdx.x;
  Pack<T, N> gates[kUnroll], ups[kUnroll], dys[kUnroll];
  Place at[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const Index pack = first + static_cast<Index>(u * kThreads);
    if (pack < packs) {
      at[u] = place_of<N>(pack, packs_per_row, width);
      gates[u] = load_pack<N>(gate_up + at[u].gates);
      ups[u] = load_pack<N>(gate_up + at[u].gates + width);
      dys[u] = load_pack<N>(dy + at[u].half);
    }
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (first + static_cast<Index>(u * kThreads) < packs) {
      const Floats<N> gate = to_floats(gates[u]), up = to_floats(ups[u]), d = to_floats(dys[u]);
      Floats<N> dgate, dup;
#pragma unroll
      for (int e = 0; e < N; ++e) {
        float slope;
        dup[e] = d[e] * open_gate<kGate, T>(gate[e], slope);
        dgate[e] = d[e] * up[e] * slope;
      }
      store_floats(dgate_up + at[u].gates, dgate);
      store_floats(dgate_up + at[u].gates + width, dup);
    }
  }
}

// Calls f with the pack size as std::integral_constant, and with the number of packs in the
// narrowest sufficient index type.
template <class T, class F>
void with_packs(bool vectors, std::size_t elements, F&& f) {
  const auto with_index = [&]<int N>(std::integral_constant<int, N> size) {
    const std::size_t packs = elements / N;
    // Below 2^32 also for the indices that threads compute past the end.
    if (packs < (std::size_t{1} << 32) - kThreads * kUnroll) {
      f(size, static_cast<std::uint32_t>(packs));
    } else {
      f(size, static_cast<std::uint64_t>(packs));
    }
  };
  if (vectors) {
    with_index(std::integral_constant<int, kPerVector<T>>{});
  } else {
    with_index(std::integral_constant<int, 1>{});
  }
}

template <class F>
void with_gate(ops::Gate gate, F&& f) {
  if (gate == ops::Gate::kSilu) return f(std::integral_constant<ops::Gate, ops::Gate::kSilu>{});
  f(std::integral_constant<ops::Gate, ops::Gate::kGeluTanh>{});
}

unsigned blocks_for(std::size_t packs) {
  return static_cast<unsigned>(divide_up(packs, kThreads * kUnroll));
}

}  // namespace

void run(const Context& context, const ops::SwiGlu& call) {
  if (call.y.elements() == 0) return;
  with_compute_type(call.y.dtype(), [&]<class T>(TypeTag<T>) {
    const auto width = static_cast<std::size_t>(call.y.shape()[1]);
    constexpr int kMost = kPerVector<T>;
    const bool vectors = width % kMost == 0 && all_allow_packs<T, kMost>(call.gate_up, call.y);
    with_packs<T>(vectors, call.y.elements(),
                  [&]<int N, class Index>(std::integral_constant<int, N>, Index packs) {
                    with_gate(
                        call.gate, [&]<ops::Gate kGate>(std::integral_constant<ops::Gate, kGate>) {
                          launch_overlapped<const T*, T*, Index, Index, std::size_t>(
                              context, "swiglu", swiglu_kernel<kGate, T, N, Index>,
                              dim3(blocks_for(packs)), kThreads, 0, data_of<const T>(call.gate_up),
                              data_of<T>(call.y), packs, static_cast<Index>(width / N), width);
                        });
                  });
  });
}

void run(const Context& context, const ops::SwiGluBackward& call) {
  if (call.dy.elements() == 0) return;
  with_compute_type(call.dy.dtype(), [&]<class T>(TypeTag<T>) {
    const auto width = static_cast<std::size_t>(call.dy.shape()[1]);
    constexpr int kMost = kPerVector<T>;
    const bool vectors =
        width % kMost == 0 && all_allow_packs<T, kMost>(call.gate_up, call.dy, call.dgate_up);
    with_packs<T>(
        vectors, call.dy.elements(),
        [&]<int N, class Index>(std::integral_constant<int, N>, Index packs) {
          with_gate(call.gate, [&]<ops::Gate kGate>(std::integral_constant<ops::Gate, kGate>) {
            launch_overlapped<const T*, const T*, T*, Index, Index, std::size_t>(
                context, "swiglu_backward", swiglu_backward_kernel<kGate, T, N, Index>,
                dim3(blocks_for(packs)), kThreads, 0, data_of<const T>(call.gate_up),
                data_of<const T>(call.dy), data_of<T>(call.dgate_up), packs,
                static_cast<Index>(width / N), width);
          });
        });
  });
}

}  // namespace lockstep::cuda
