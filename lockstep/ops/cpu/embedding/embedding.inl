// The kernels of kernels.h for one instruction set.
#pragma once

#include "lockstep/ops/cpu/elementwise/dropout.inl"
#include "lockstep/ops/cpu/embedding/kernels.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

// The rows of the tables that make one row of y.
template <class T>
struct Parts {
  const T* token;
  const T* position;
  const T* type;

  Floats sum(std::size_t i, std::size_t part) const {
    Floats x = token != nullptr ? load_some(token + i, part) : splat(0);
    if (position != nullptr) x += load_some(position + i, part);
    if (type != nullptr) x += load_some(type + i, part);
    return x;
  }
};

template <class T>
const T* row_of(const void* table, std::size_t row, std::size_t width) {
  return table == nullptr ? nullptr : static_cast<const T*>(table) + row * width;
}

// In the table, which may be a shard that has it or not.
std::int64_t token_index(const EmbeddingRows& call, std::size_t row) {
  return call.tokens[row] - call.first_token;
}
bool token_here(const EmbeddingRows& call, std::size_t row) {
  const std::int64_t index = token_index(call, row);
  return index >= 0 && index < call.tokens_here;
}

template <class T>
void forward(const EmbeddingRows& call) {
  const DropoutKey none;
  DropoutFactors factors(call.dropout != nullptr ? *call.dropout : none);
  const std::size_t width = call.width;
  for (std::size_t row = call.begin; row < call.end; ++row) {
    const Parts<T> parts{
        token_here(call, row)
            ? row_of<T>(call.tokens_table, static_cast<std::size_t>(token_index(call, row)), width)
            : nullptr,
        call.positions_table == nullptr
            ? nullptr
            : row_of<T>(call.positions_table, row % call.sequence, width),
        call.types_table == nullptr
            ? nullptr
            : row_of<T>(call.types_table, static_cast<std::size_t>(call.types[row]), width)};
    T* y = static_cast<T*>(call.y) + row * width;
    if (call.dropout == nullptr) {
      for_vectors(width,
                  [&](std::size_t i, auto part) { store_some(y + i, parts.sum(i, part), part); });
    } else {
      factors.for_pieces(call.dropout->first + row * width, width,
                         [&](std::size_t done, std::size_t count, const float* f) {
                           for_vectors(count, [&](std::size_t i, auto part) {
                             store_some(y + done + i,
                                        parts.sum(done + i, part) * load_some(f + i, part), part);
                           });
                         });
    }
  }
}

// Sums rows in groups of this many, then the groups: a padding token has thousands of rows, and the
// rounding error of one long sum would grow.
constexpr std::size_t kGroup = 64;

template <class T, class Gradient>
void add_rows(const RowsToAdd& call) {
  const T* dy = static_cast<const T*>(call.dy);
  for (std::size_t first = 0; first < call.row_count; first += kGroup) {
    const std::size_t left = call.row_count - first;
    const std::size_t count = left < kGroup ? left : kGroup;
    for_vectors(call.columns, [&](std::size_t i, auto part) {
      Floats sum = load_some(dy + call.rows[first] * call.width + i, part);
      for (std::size_t k = 1; k < count; ++k) {
        sum += load_some(dy + call.rows[first + k] * call.width + i, part);
      }
      if (first > 0) sum += load_some(call.sums + i, part);
      store_some(call.sums + i, sum, part);
    });
  }
  Gradient* gradient = static_cast<Gradient*>(call.gradient);
  for_vectors(call.columns, [&](std::size_t i, auto part) {
    store_some(gradient + i, load_some(gradient + i, part) + load_some(call.sums + i, part), part);
  });
}

}  // namespace

const EmbeddingKernels embedding_kernels{
    .forward = {forward<float>, forward<BFloat16>, forward<Half>},
    .add_rows = {add_rows<float, float>, add_rows<BFloat16, BFloat16>, add_rows<Half, Half>},
    .add_rows_to_f32 = {add_rows<float, float>, add_rows<BFloat16, float>, add_rows<Half, float>},
};

}  // namespace lockstep::cpu::LOCKSTEP_ISA
