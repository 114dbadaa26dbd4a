// One kernel serves all operations: it walks over tiles of elements and calls an operation, a
// struct with
//
//   begin()            reads numbers that lie on the device, once per thread
//   In<N>              what it loads for N elements
//   load<N>(i)         loads them
//   finish<N>(i, in)   computes, and stores
//
// A whole tile is processed in vectors of N elements, all loads first. The last tile, which may be
// shorter, is processed element by element. A thread stores only where it has loaded itself, so an
// output may be an input.
#include "lockstep/ops/cuda/elementwise/elementwise.h"

#include "lockstep/ops/cuda/device/dropout.cuh"
#include "lockstep/ops/cuda/device/overlap.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/elementwise/activation.cuh"
#include "lockstep/ops/cuda/elementwise/soft_cap.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;

template <int N, int kUnroll, class Operation>
__global__ void __launch_bounds__(kThreads)
    elementwise_kernel(Operation operation, std::size_t count) {
  constexpr std::size_t kTile = std::size_t{kThreads} * N * kUnroll;
  const std::size_t first = blockIdx.x * kTile;
  start_next();
  wait_for_previous();
  operation.begin();
  if (first + kTile <= count) {
    const std::size_t own = first + std::size_t{threadIdx.x} * N;
    typename Operation::template In<N> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      in[u] = operation.template load<N>(own + std::size_t{kThreads} * N * u);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      operation.template finish<N>(own + std::size_t{kThreads} * N * u, in[u]);
    }
  } else {
    for (std::size_t i = first + threadIdx.x; i < count; i += kThreads) {
      operation.template finish<1>(i, operation.template load<1>(i));
    }
  }
}

template <int N, int kUnroll, class Operation>
void launch(const Context& context, const Operation& operation, std::size_t count,
            const char* name) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(divide_up(count, std::size_t{kThreads} * N * kUnroll));
  launch_overlapped<Operation, std::size_t>(context, name,
                                            elementwise_kernel<N, kUnroll, Operation>, blocks,
                                            kThreads, 0, operation, count);
}

template <ops::Activation kActivation, class T>
struct ActivateOp {
  const T* z;
  T* y;
  T* derivative;  // may be null

  template <int N>
  using In = Pack<T, N>;

  __device__ void begin() {}
  template <int N>
  __device__ __forceinline__ In<N> load(std::size_t i) const {
    return load_pack<N>(z + i);
  }
  template <int N>
  __device__ __forceinline__ void finish(std::size_t i, const In<N>& in) const {
    const Floats<N> value = to_floats(in);
    Floats<N> activated, slope;
#pragma unroll
    for (int e = 0; e < N; ++e) activated[e] = activate<kActivation, T>(value[e], slope[e]);
    store_floats(y + i, activated);
    if (derivative != nullptr) store_floats(derivative + i, slope);
  }
};

struct Product {
  __device__ static float of(float a, float b) { return a * b; }
};
struct Sum {
  __device__ static float of(float a, float b) { return a + b; }
};

template <class Result, class T>
struct PairOp {
  const T* a;
  const T* b;
  T* y;

  template <int N>
  struct In {
    Pack<T, N> a, b;
  };

  __device__ void begin() {}
  template <int N>
  __device__ __forceinline__ In<N> load(std::size_t i) const {
    return {load_pack<N>(a + i), load_pack<N>(b + i)};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::size_t i, const In<N>& in) const {
    const Floats<N> left = to_floats(in.a), right = to_floats(in.b);
    Floats<N> result;
#pragma unroll
    for (int e = 0; e < N; ++e) result[e] = Result::of(left[e], right[e]);
    store_floats(y + i, result);
  }
};

template <class T>
struct DropOp {
  DropoutArg dropout;
  const T* x;
  T* y;

  template <int N>
  using In = Pack<T, N>;

  __device__ void begin() { dropout.step = {dropout.step.get(), nullptr}; }
  template <int N>
  __device__ __forceinline__ In<N> load(std::size_t i) const {
    return load_pack<N>(x + i);
  }
  template <int N>
  __device__ __forceinline__ void finish(std::size_t i, const In<N>& in) const {
    const Floats<N> factors = DropoutKey(dropout).factors<N>(i);
    Floats<N> value = to_floats(in);
#pragma unroll
    for (int e = 0; e < N; ++e) value[e] *= factors[e];
    store_floats(y + i, value);
  }
};

// Converts a double to 16 bits through a float. The float's last bit records whether anything was
// cut off, so that the second rounding resolves ties correctly.
__device__ __forceinline__ float to_odd_float(double x) {
  const float cut = __double2float_rz(x);
  const bool exact = static_cast<double>(cut) == x;
  return exact ? cut : __uint_as_float(__float_as_uint(cut) | 1u);
}

// Of one type it is a copy.
template <class From, class To>
struct CastOp {
  const From* from;
  To* to;

  template <int N>
  using In = Pack<From, N>;

  __device__ void begin() {}
  template <int N>
  __device__ __forceinline__ In<N> load(std::size_t i) const {
    return load_pack<N>(from + i);
  }
  template <int N>
  __device__ __forceinline__ void finish(std::size_t i, const In<N>& in) const {
    if constexpr (std::is_same_v<From, To>) {
      store_pack<N>(to + i, in);
    } else if constexpr (std::is_same_v<To, double>) {
      const Floats<N> floats = to_floats(in);
      Pack<double, N> doubles;
#pragma unroll
      for (int e = 0; e < N; ++e) doubles.at[e] = static_cast<double>(floats[e]);
      store_pack<N>(to + i, doubles);
    } else if constexpr (std::is_same_v<From, double>) {
      Floats<N> floats;
#pragma unroll
      for (int e = 0; e < N; ++e) {
        floats[e] = sizeof(To) == 2 ? to_odd_float(in.at[e]) : __double2float_rn(in.at[e]);
      }
      store_floats(to + i, floats);
    } else {
      store_floats(to + i, to_floats(in));
    }
  }
};

// Changes elements where they are, each by itself.
template <class Change, class T>
struct ChangeOp {
  T* x;
  Change change;

  template <int N>
  using In = Pack<T, N>;

  __device__ void begin() { change.begin(); }
  template <int N>
  __device__ __forceinline__ In<N> load(std::size_t i) const {
    return load_pack<N>(x + i);
  }
  template <int N>
  __device__ __forceinline__ void finish(std::size_t i, const In<N>& in) const {
    Floats<N> changed = to_floats(in);
#pragma unroll
    for (int e = 0; e < N; ++e) changed[e] = change.of(changed[e]);
    store_floats(x + i, changed);
  }
};

struct Scaling {
  ScalarArg factor;
  float value;

  __device__ void begin() { value = static_cast<float>(factor.get()); }
  __device__ __forceinline__ float of(float x) const { return x * value; }
};
struct Capping {
  float cap;

  __device__ void begin() {}
  __device__ __forceinline__ float of(float x) const { return soft_cap(x, cap); }
};

template <class T, ops::Activation kActivation>
void activate_typed(const Context& context, const ops::Activate& call) {
  constexpr int N = kPerVector<T>;
  const ActivateOp<kActivation, T> operation{data_of<const T>(call.z), data_of<T>(call.y),
                                             data_of<T>(call.derivative)};
  if (all_allow_packs<T, N>(call.z, call.y, call.derivative)) {
    launch<N, 2>(context, operation, call.z.elements(), "activate");
  } else {
    launch<1, 4>(context, operation, call.z.elements(), "activate");
  }
}

template <class Result, class Call>
void run_pair(const Context& context, const Call& call, const char* name) {
  with_compute_type(call.a.dtype(), [&]<class T>(TypeTag<T>) {
    constexpr int N = kPerVector<T>;
    const PairOp<Result, T> operation{data_of<const T>(call.a), data_of<const T>(call.b),
                                      data_of<T>(call.y)};
    if (all_allow_packs<T, N>(call.a, call.b, call.y)) {
      launch<N, 2>(context, operation, call.a.elements(), name);
    } else {
      launch<1, 4>(context, operation, call.a.elements(), name);
    }
  });
}

template <class Change>
void run_change(const Context& context, const Tensor& x, const Change& change, const char* name) {
  with_compute_type(x.dtype(), [&]<class T>(TypeTag<T>) {
    constexpr int N = kPerVector<T>;
    const ChangeOp<Change, T> operation{data_of<T>(x), change};
    if (allows_packs<T, N>(x)) {
      launch<N, 4>(context, operation, x.elements(), name);
    } else {
      launch<1, 4>(context, operation, x.elements(), name);
    }
  });
}

// Of all types that Cast knows.
template <class F>
void with_any_float_type(DType dtype, F&& f) {
  if (dtype == DType::kF64) return f(TypeTag<double>{});
  with_compute_type(dtype, f);
}

// Copies with a kernel, which is faster on an H200 than a copy node of a graph.
void copy(const Context& context, const Tensor& from, const Tensor& to, const char* operation) {
  if (to.data() == from.data()) return;
  with_any_float_type(from.dtype(), [&]<class T>(TypeTag<T>) {
    constexpr int N = kPerVector<T>;
    const CastOp<T, T> copied{data_of<const T>(from), data_of<T>(to)};
    if (all_allow_packs<T, N>(from, to)) {
      launch<N, 4>(context, copied, from.elements(), operation);
    } else {
      launch<1, 4>(context, copied, from.elements(), operation);
    }
  });
}

}  // namespace

void run(const Context& context, const ops::Activate& call) {
  with_compute_type(call.z.dtype(), [&]<class T>(TypeTag<T>) {
    switch (call.activation) {
      case ops::Activation::kGeluTanh:
        return activate_typed<T, ops::Activation::kGeluTanh>(context, call);
      case ops::Activation::kGeluErf:
        return activate_typed<T, ops::Activation::kGeluErf>(context, call);
      case ops::Activation::kRelu:
        return activate_typed<T, ops::Activation::kRelu>(context, call);
    }
  });
}

void run(const Context& context, const ops::Multiply& call) {
  run_pair<Product>(context, call, "multiply");
}

void run(const Context& context, const ops::Add& call) { run_pair<Sum>(context, call, "add"); }

void run(const Context& context, const ops::Drop& call) {
  if (call.dropout.probability == 0) {
    copy(context, call.x, call.y, "drop");
    return;
  }
  with_compute_type(call.x.dtype(), [&]<class T>(TypeTag<T>) {
    constexpr int N = kPerVector<T>;
    const DropOp<T> operation{dropout_arg(call.dropout), data_of<const T>(call.x),
                              data_of<T>(call.y)};
    if (all_allow_packs<T, N>(call.x, call.y)) {
      launch<N, 2>(context, operation, call.x.elements(), "drop");
    } else {
      launch<1, 4>(context, operation, call.x.elements(), "drop");
    }
  });
}

void run(const Context& context, const ops::Cast& call) {
  if (call.from.dtype() == call.to.dtype()) {
    copy(context, call.from, call.to, "cast");
    return;
  }
  with_any_float_type(call.from.dtype(), [&]<class From>(TypeTag<From>) {
    with_any_float_type(call.to.dtype(), [&]<class To>(TypeTag<To>) {
      if constexpr (!std::is_same_v<From, To>) {
        constexpr int N = sizeof(From) == 2 && sizeof(To) == 2 ? 8 : 4;
        const CastOp<From, To> operation{data_of<const From>(call.from), data_of<To>(call.to)};
        if (allows_packs<From, N>(call.from) && allows_packs<To, N>(call.to)) {
          launch<N, 4>(context, operation, call.from.elements(), "cast");
        } else {
          launch<1, 4>(context, operation, call.from.elements(), "cast");
        }
      }
    });
  });
}

void run(const Context& context, const ops::Scale& call) {
  run_change(context, call.x, Scaling{scalar(call.factor), 0}, "scale");
}

void run(const Context& context, const ops::SoftCap& call) {
  run_change(context, call.x, Capping{static_cast<float>(call.cap)}, "soft_cap");
}

}  // namespace lockstep::cuda
