// The kernels of kernels.h for one instruction set.
#pragma once

#include "lockstep/base/simd/soft_cap.inl"
#include "lockstep/ops/cpu/elementwise/activation.inl"
#include "lockstep/ops/cpu/elementwise/dropout.inl"
#include "lockstep/ops/cpu/elementwise/kernels.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

// y[i] = f(a[i], ...) for every vector; y may be any of the others.
template <class T, class F, class... From>
void map(std::size_t count, void* y, F&& f, const From*... from) {
  for_vectors(count, [&](std::size_t i, auto part) {
    store_some(static_cast<T*>(y) + i, f(load_some(from + i, part)...), part);
  });
}

using Function = Floats (*)(Floats z, Floats& derivative);

struct Activated {
  Floats value;  // z, then f(z)
  Floats derivative;
};

template <class T, Function f>
void activate(const void* z, void* y, void* derivative, std::size_t count) {
  const auto read = [&](std::size_t i, auto part) {
    return Activated{load_some(static_cast<const T*>(z) + i, part), {}};
  };
  const auto work = [](Activated& x) { x.value = f(x.value, x.derivative); };
  const auto write = [&](std::size_t i, auto part, const Activated& x) {
    store_some(static_cast<T*>(y) + i, x.value, part);
  };
  if (derivative == nullptr) return for_vectors_by_two(count, read, work, write);
  for_vectors_by_two(count, read, work, [&](std::size_t i, auto part, const Activated& x) {
    write(i, part, x);
    store_some(static_cast<T*>(derivative) + i, x.derivative, part);
  });
}

template <class T>
void multiply_pair(const void* a, const void* b, void* y, std::size_t count) {
  map<T>(
      count, y, [](Floats p, Floats q) { return p * q; }, static_cast<const T*>(a),
      static_cast<const T*>(b));
}

template <class T>
void add_pair(const void* a, const void* b, void* y, std::size_t count) {
  map<T>(
      count, y, [](Floats p, Floats q) { return p + q; }, static_cast<const T*>(a),
      static_cast<const T*>(b));
}

struct Gated {
  Floats gate;
  Floats up;
  Floats dy;
};

template <class T, Function gate_function>
void gated(const void* gate_up, void* y, std::size_t rows, std::size_t width) {
  for (std::size_t row = 0; row < rows; ++row) {
    const T* gate = static_cast<const T*>(gate_up) + row * 2 * width;
    for_vectors_by_two(
        width,
        [&](std::size_t i, auto part) {
          return Gated{load_some(gate + i, part), load_some(gate + width + i, part), {}};
        },
        [](Gated& x) {
          Floats unused;
          x.up = gate_function(x.gate, unused) * x.up;
        },
        [&](std::size_t i, auto part, const Gated& x) {
          store_some(static_cast<T*>(y) + row * width + i, x.up, part);
        });
  }
}

template <class T, Function gate_function>
void gated_backward(const void* gate_up, const void* dy, void* dgate_up, std::size_t rows,
                    std::size_t width) {
  for (std::size_t row = 0; row < rows; ++row) {
    const T* gate = static_cast<const T*>(gate_up) + row * 2 * width;
    T* dgate = static_cast<T*>(dgate_up) + row * 2 * width;
    for_vectors_by_two(
        width,
        [&](std::size_t i, auto part) {
          return Gated{load_some(gate + i, part), load_some(gate + width + i, part),
                       load_some(static_cast<const T*>(dy) + row * width + i, part)};
        },
        [](Gated& x) {
          Floats slope;
          const Floats value = gate_function(x.gate, slope);
          x.gate = x.dy * x.up * slope;
          x.up = x.dy * value;
        },
        [&](std::size_t i, auto part, const Gated& x) {
          store_some(dgate + i, x.gate, part);
          store_some(dgate + width + i, x.up, part);
        });
  }
}

template <class T>
void drop(const DropoutKey& key, const void* x, void* y, std::size_t count) {
  DropoutFactors factors(key);
  factors.for_pieces(key.first, count, [&](std::size_t done, std::size_t here, const float* f) {
    map<T>(
        here, static_cast<T*>(y) + done, [](Floats value, Floats factor) { return value * factor; },
        static_cast<const T*>(x) + done, f);
  });
}

template <class From, class To>
void cast(const void* from, void* to, std::size_t count) {
  map<To>(
      count, to, [](Floats x) { return x; }, static_cast<const From*>(from));
}

template <class T>
void scale(void* x, float factor, std::size_t count) {
  map<T>(
      count, x, [&](Floats value) { return value * factor; }, static_cast<const T*>(x));
}

template <class T>
void cap_softly(void* x, float cap, std::size_t count) {
  map<T>(
      count, x, [&](Floats value) { return soft_cap(value, cap); }, static_cast<const T*>(x));
}

template <class T>
void rotary(void* x, const float* cosines, const float* sines, std::size_t heads,
            std::size_t stride, std::size_t half) {
  for (std::size_t head = 0; head < heads; ++head) {
    T* first = static_cast<T*>(x) + head * stride;
    T* second = first + half;
    for_vectors(half, [&](std::size_t i, auto part) {
      const Floats a = load_some(first + i, part);
      const Floats b = load_some(second + i, part);
      const Floats c = load_some(cosines + i, part);
      const Floats s = load_some(sines + i, part);
      store_some(first + i, fused(a, c, -(b * s)), part);
      store_some(second + i, fused(a, s, b * c), part);
    });
  }
}

template <Function f>
constexpr PerType<ElementwiseKernels::Activate> kActivate{activate<float, f>, activate<BFloat16, f>,
                                                          activate<Half, f>};
template <Function f>
constexpr PerType<ElementwiseKernels::SwiGlu> kGated{gated<float, f>, gated<BFloat16, f>,
                                                     gated<Half, f>};
template <Function f>
constexpr PerType<ElementwiseKernels::SwiGluBackward> kGatedBackward{
    gated_backward<float, f>, gated_backward<BFloat16, f>, gated_backward<Half, f>};
template <class From>
constexpr PerType<ElementwiseKernels::Cast> kCast{cast<From, float>, cast<From, BFloat16>,
                                                  cast<From, Half>};

}  // namespace

const ElementwiseKernels elementwise_kernels{
    .gelu_tanh = kActivate<gelu_tanh>,
    .gelu_erf = kActivate<gelu_erf>,
    .relu = kActivate<relu>,
    .multiply = {multiply_pair<float>, multiply_pair<BFloat16>, multiply_pair<Half>},
    .add = {add_pair<float>, add_pair<BFloat16>, add_pair<Half>},
    .swiglu = kGated<silu>,
    .geglu = kGated<gelu_tanh>,
    .swiglu_backward = kGatedBackward<silu>,
    .geglu_backward = kGatedBackward<gelu_tanh>,
    .drop = {drop<float>, drop<BFloat16>, drop<Half>},
    .cast = {kCast<float>, kCast<BFloat16>, kCast<Half>},
    .scale = {scale<float>, scale<BFloat16>, scale<Half>},
    .soft_cap = {cap_softly<float>, cap_softly<BFloat16>, cap_softly<Half>},
    .rotary = {rotary<float>, rotary<BFloat16>, rotary<Half>},
};

}  // namespace lockstep::cpu::LOCKSTEP_ISA
