// The kernels of the packed product for one instruction set. Part of a file of kernels (vector.inl)
// that chooses the size of a tile: make_kernels<rows, vectors per row>().
#pragma once

#include <algorithm>

#include "lockstep/ops/cpu/activation.inl"
#include "lockstep/ops/cpu/gemm/kernels.h"
#include "lockstep/ops/cpu/gemm/pack.inl"
#include "lockstep/ops/cpu/gemm/tile.inl"
#include "lockstep/ops/cpu/vector.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
Floats rounded_to(Floats x) {
  T lanes[kLanes];
  store(lanes, x);
  return load(lanes);
}

// f(index in the output, part of a vector, sum with what is added and multiplied) for every vector
// of a tile.
template <std::size_t columns, class T, class F>
void for_sums(const gemm::Product& product, const float* tile, const gemm::Place& place, F&& f) {
  const gemm::Finish& todo = product.finish;
  const auto* bias = reinterpret_cast<const T*>(todo.bias);
  const auto* added = reinterpret_cast<const T*>(todo.added);
  const auto* factor = reinterpret_cast<const T*>(todo.factor);
  for (std::size_t row = 0; row < place.rows; ++row, tile += columns) {
    const std::size_t first = (place.row + row) * product.shape.n + place.column;
    for_vectors(place.columns, [&](std::size_t i, auto part) {
      Floats x = load(tile + i);
      if (bias != nullptr) x = x + load_some(bias + place.column + i, part);
      if (added != nullptr) x = x + load_some(added + first + i, part);
      if (factor != nullptr) x = x * load_some(factor + first + i, part);
      f(first + i, part, x);
    });
  }
}

template <ops::Activation activation>
inline Floats activated(Floats z, Floats& derivative) {
  if constexpr (activation == ops::Activation::kGeluTanh) return gelu_tanh(z, derivative);
  if constexpr (activation == ops::Activation::kGeluErf) return gelu_erf(z, derivative);
  if constexpr (activation == ops::Activation::kRelu) return relu(z, derivative);
}

template <std::size_t columns, class T, ops::Activation activation>
void finish_activated(const gemm::Product& product, const float* tile, const gemm::Place& place) {
  auto* output = reinterpret_cast<T*>(product.output);
  auto* derivatives = reinterpret_cast<T*>(product.finish.derivative);
  for_sums<columns, T>(product, tile, place, [&](std::size_t at, auto part, Floats x) {
    Floats derivative;
    store_some(output + at, activated<activation>(rounded_to<T>(x), derivative), part);
    if (derivatives != nullptr) store_some(derivatives + at, derivative, part);
  });
}

template <std::size_t columns, class T>
void finish(const gemm::Product& product, const float* tile, const gemm::Place& place) {
  using ops::Activation;
  if (!product.finish.activation) {
    auto* output = reinterpret_cast<T*>(product.output);
    return for_sums<columns, T>(product, tile, place, [&](std::size_t at, auto part, Floats x) {
      store_some(output + at, x, part);
    });
  }
  switch (*product.finish.activation) {
    case Activation::kGeluTanh:
      return finish_activated<columns, T, Activation::kGeluTanh>(product, tile, place);
    case Activation::kGeluErf:
      return finish_activated<columns, T, Activation::kGeluErf>(product, tile, place);
    case Activation::kRelu:
      return finish_activated<columns, T, Activation::kRelu>(product, tile, place);
  }
}

// Rows are added up in groups first: fewer roundings of large sums.
template <class T>
void add_column_sums(const std::byte* matrix, std::size_t rows, std::size_t stride,
                     std::size_t columns, float* sums) {
  constexpr std::size_t kGroup = 64;
  const T* first = reinterpret_cast<const T*>(matrix);
  for (std::size_t row = 0; row < rows; row += kGroup) {
    const std::size_t group = std::min(kGroup, rows - row);
    for_vectors(columns, [&](std::size_t i, auto part) {
      const T* from = first + row * stride + i;
      Floats sum = splat(0);
      for (std::size_t p = 0; p < group; ++p) sum = sum + load_some(from + p * stride, part);
      store_some(sums + i, load_some(sums + i, part) + sum, part);
    });
  }
}

template <std::size_t rows, std::size_t columns, class T>
constexpr gemm::TypeKernels make_type_kernels() {
  return {.pack_rows = pack<rows, T>,
          .pack_columns = pack<columns, T>,
          .finish = finish<columns, T>,
          .add_column_sums = add_column_sums<T>};
}

template <std::size_t rows, std::size_t vectors>
constexpr gemm::Kernels make_kernels() {
  constexpr std::size_t columns = vectors * kLanes;
  static_assert(rows * columns <= gemm::Kernels::kMostTile && kLanes <= gemm::Kernels::kSlack);
  return {.rows = rows,
          .columns = columns,
          .multiply = multiply<rows, vectors>,
          .f32 = make_type_kernels<rows, columns, float>(),
          .bf16 = make_type_kernels<rows, columns, BFloat16>(),
          .f16 = make_type_kernels<rows, columns, Half>()};
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
