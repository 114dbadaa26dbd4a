// What becomes of a tile's sums (gemm/product.h), row by row. Part of a file of kernels
// (vector.inl).
//
// All vectors of a row take each step together: an activation is a long chain of instructions, and
// the CPU works on several chains at once only where they lie side by side.
#pragma once

#include <algorithm>

#include "lockstep/base/simd/vector.inl"
#include "lockstep/ops/cpu/elementwise/activation.inl"
#include "lockstep/ops/cpu/gemm/kernels.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

template <std::size_t vectors>
struct Row {
  Floats x[vectors];

  template <class F>
  void each(F&& f) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < vectors; ++i) x[i] = f(x[i], i);
  }
};

// A row of `count` elements, at most those of the vectors; zeros behind them.
template <std::size_t vectors, class T>
Row<vectors> load_part_of_row(const T* from, std::size_t count) {
  Row<vectors> row;
  row.each([&](Floats, std::size_t i) {
    const std::size_t first = i * kLanes;
    return first < count ? load_some(from + first, std::min(kLanes, count - first)) : splat(0);
  });
  return row;
}

template <std::size_t vectors, class T>
void store_part_of_row(T* to, const Row<vectors>& row, std::size_t count) {
#pragma GCC unroll 4
  for (std::size_t i = 0; i < vectors; ++i) {
    const std::size_t first = i * kLanes;
    if (first < count) store_some(to + first, row.x[i], std::min(kLanes, count - first));
  }
}

// The same where the row is known to be whole, as most are.
template <bool whole, std::size_t vectors, class T>
[[gnu::always_inline]] inline Row<vectors> load_row(const T* from, std::size_t count) {
  if constexpr (!whole) return load_part_of_row<vectors>(from, count);
  Row<vectors> row;
  row.each([&](Floats, std::size_t i) { return load(from + i * kLanes); });
  return row;
}

template <bool whole, std::size_t vectors, class T>
[[gnu::always_inline]] inline void store_row(T* to, const Row<vectors>& row, std::size_t count) {
  if constexpr (!whole) return store_part_of_row(to, row, count);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < vectors; ++i) store(to + i * kLanes, row.x[i]);
}

inline Floats rounded_to(Floats x, float) { return x; }
inline Floats rounded_to(Floats x, BFloat16) {
  return (Floats)(rounded_to_bfloat16(x) & 0xffff0000);
}
template <class T>
Floats rounded_to(Floats x, T) {
  T lanes[kLanes];
  store(lanes, x);
  return load(lanes);
}

struct NoActivation {};
template <ops::Activation f>
struct Activated {
  static Floats of(Floats z, Floats& derivative) {
    if constexpr (f == ops::Activation::kGeluTanh) return gelu_tanh(z, derivative);
    if constexpr (f == ops::Activation::kGeluErf) return gelu_erf(z, derivative);
    if constexpr (f == ops::Activation::kRelu) return relu(z, derivative);
  }
};

template <bool whole, std::size_t vectors, class T, class Function>
void finish_rows(const gemm::Product& product, const float* tile, const gemm::Place& place) {
  const gemm::Finish& with = product.finish;
  const auto* bias = reinterpret_cast<const T*>(with.bias);
  const auto* added = reinterpret_cast<const T*>(with.added);
  const auto* factor = reinterpret_cast<const T*>(with.factor);
  auto* output = reinterpret_cast<T*>(product.output);
  auto* derivatives = reinterpret_cast<T*>(with.derivative);
  auto* sums = reinterpret_cast<T*>(with.z);
  const std::size_t count = place.columns;
  for (std::size_t i = 0; i < place.rows; ++i, tile += vectors * kLanes) {
    const std::size_t at = (place.row + i) * product.shape.n + place.column;
    auto row = load_row<true, vectors>(tile, vectors * kLanes);
    if (bias != nullptr) {
      const auto other = load_row<whole, vectors>(bias + place.column, count);
      row.each([&](Floats x, std::size_t j) { return x + other.x[j]; });
    }
    if (added != nullptr) {
      const auto other = load_row<whole, vectors>(added + at, count);
      row.each([&](Floats x, std::size_t j) { return x + other.x[j]; });
    }
    if (factor != nullptr) {
      const auto other = load_row<whole, vectors>(factor + at, count);
      row.each([&](Floats x, std::size_t j) { return x * other.x[j]; });
    }
    if constexpr (!std::is_same_v<Function, NoActivation>) {
      if (sums != nullptr) store_row<whole>(sums + at, row, count);
      Row<vectors> derivative;
      row.each([&](Floats x, std::size_t j) {
        return Function::of(rounded_to(x, T{}), derivative.x[j]);
      });
      if (derivatives != nullptr) store_row<whole>(derivatives + at, derivative, count);
    }
    store_row<whole>(output + at, row, count);
  }
}

template <std::size_t vectors, class T, class Function>
void finish_with(const gemm::Product& product, const float* tile, const gemm::Place& place) {
  if (place.columns == vectors * kLanes) {
    finish_rows<true, vectors, T, Function>(product, tile, place);
  } else {
    finish_rows<false, vectors, T, Function>(product, tile, place);
  }
}

template <std::size_t vectors, class T>
void finish(const gemm::Product& product, const float* tile, const gemm::Place& place) {
  using ops::Activation;
  if (!product.finish.activation) {
    return finish_with<vectors, T, NoActivation>(product, tile, place);
  }
  switch (*product.finish.activation) {
    case Activation::kGeluTanh:
      return finish_with<vectors, T, Activated<Activation::kGeluTanh>>(product, tile, place);
    case Activation::kGeluErf:
      return finish_with<vectors, T, Activated<Activation::kGeluErf>>(product, tile, place);
    case Activation::kRelu:
      return finish_with<vectors, T, Activated<Activation::kRelu>>(product, tile, place);
  }
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
