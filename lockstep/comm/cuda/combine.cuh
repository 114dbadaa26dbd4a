// Combining elements of all types by all operations.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "lockstep/comm/reduce_op.h"

namespace lockstep::cuda {

template <class T>
struct Wide {
  using type = T;
};
template <>
struct Wide<__half> {
  using type = float;
};
template <>
struct Wide<__nv_bfloat16> {
  using type = float;
};

template <class T>
__device__ typename Wide<T>::type widen(T x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half2float(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(x);
  } else {
    return x;
  }
}

template <class T>
__device__ T narrow(typename Wide<T>::type x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else {
    return x;
  }
}

// Integers wrap around.
template <class W>
__device__ W add(W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    return a + b;
  } else {
    using U = std::make_unsigned_t<W>;
    return static_cast<W>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  }
}

template <class W>
__device__ W multiply(W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    return a * b;
  } else {
    using U = std::make_unsigned_t<W>;
    return static_cast<W>(static_cast<U>(static_cast<std::uint64_t>(static_cast<U>(a)) *
                                         static_cast<std::uint64_t>(static_cast<U>(b))));
  }
}

template <bool kSums, class W>
__device__ W combine(W a, W b, ReduceOp::Kind op) {
  if constexpr (kSums) return add(a, b);
  switch (op) {
    case ReduceOp::kProd:
      return multiply(a, b);
    case ReduceOp::kMin:
      if (a != a) return a;
      return b < a || b != b ? b : a;
    case ReduceOp::kMax:
      if (a != a) return a;
      return b > a || b != b ? b : a;
    default:
      return add(a, b);
  }
}

// A sum of `ranks` elements divided by their number; integers are rounded towards zero.
template <class W>
__device__ W mean_of(W sum, int ranks) {
  if constexpr (std::is_floating_point_v<W>) {
    return sum / static_cast<W>(ranks);
  } else {
    return static_cast<W>(static_cast<std::int64_t>(sum) / ranks);
  }
}

// Combines what ranks give, one after the other, in the order of a balanced tree: level l holds the
// result of 2^l ranks. For up to 2^kLevels ranks.
template <class T, bool kSums, int kLevels = 4>
class Tree {
 public:
  using W = typename Wide<T>::type;

  __device__ void add(int rank, W x, ReduceOp::Kind op) {
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if ((rank >> level & 1) == 0) {
        levels_[level] = x;
        return;
      }
      x = combine<kSums>(levels_[level], x, op);
    }
    all_ = x;
  }

  // Of `ranks` ranks.
  __device__ W finish(int ranks, ReduceOp::Kind op) const {
    W result = all_;  // of 2^kLevels
    bool any = false;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if ((ranks >> level & 1) == 0) continue;
      result = any ? combine<kSums>(levels_[level], result, op) : levels_[level];
      any = true;
    }
    return op == ReduceOp::kMean ? mean_of(result, ranks) : result;
  }

 private:
  W levels_[kLevels];
  W all_{};
};

// ---- of the host

// CUDA's type for an element type of the host.
template <class T>
struct DeviceTypeOf {
  using type = T;
};
template <>
struct DeviceTypeOf<Half> {
  using type = __half;
};
template <>
struct DeviceTypeOf<BFloat16> {
  using type = __nv_bfloat16;
};

// Calls f with an element of the type on the device.
template <class F>
void with_device_type(DType dtype, F&& f) {
  with_type(dtype, [&](auto element) { f(typename DeviceTypeOf<decltype(element)>::type{}); });
}

// Calls f with such an element and with whether the operation is a sum.
template <class F>
void with_kernel(DType dtype, ReduceOp::Kind op, F&& f) {
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kMean;
  with_device_type(dtype, [&](auto zero) {
    if (sums) {
      f(zero, std::true_type{});
    } else {
      f(zero, std::false_type{});
    }
  });
}

}  // namespace lockstep::cuda
