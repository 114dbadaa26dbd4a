// The kernels of kernels.h for one instruction set. A row is gone through several times, and
// stays in the first-level cache meanwhile.
#pragma once

#include "lockstep/base/simd/sums.inl"
#include "lockstep/ops/cpu/elementwise/dropout.inl"
#include "lockstep/ops/cpu/norm/kernels.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

// sum = x + dropout(branch) of one row.
template <class T>
void add_branch(const NormRows& call, std::size_t row, DropoutFactors* factors) {
  const std::size_t first = row * call.width;
  const T* x = static_cast<const T*>(call.x) + first;
  const T* branch = static_cast<const T*>(call.branch) + first;
  T* sum = static_cast<T*>(call.sum) + first;
  if (factors == nullptr) {
    for_vectors(call.width, [&](std::size_t i, auto part) {
      store_some(sum + i, load_some(x + i, part) + load_some(branch + i, part), part);
    });
    return;
  }
  factors->for_pieces(call.dropout->first + first, call.width,
                      [&](std::size_t done, std::size_t count, const float* f) {
                        for_vectors(count, [&](std::size_t i, auto part) {
                          const std::size_t at = done + i;
                          store_some(sum + at,
                                     fused(load_some(branch + at, part), load_some(f + i, part),
                                           load_some(x + at, part)),
                                     part);
                        });
                      });
}

template <class T>
void forward_row(const NormRows& call, std::size_t row) {
  const T* sum = static_cast<const T*>(call.sum) + row * call.width;
  const auto width = static_cast<float>(call.width);
  float mean = 0;
  if (call.subtracts_mean) {
    mean = sum_over(call.width, [&](std::size_t i, auto part) { return load_some(sum + i, part); });
    mean /= width;
    call.mean[row] = mean;
  }
  const float squares = sum_over(call.width, [&](std::size_t i, auto part) {
    const Floats difference = first_lanes(load_some(sum + i, part) - mean, part);
    return difference * difference;
  });
  const float rstd = 1 / __builtin_sqrtf(squares / width + call.epsilon);
  call.rstd[row] = rstd;

  const T* gain = static_cast<const T*>(call.gain);
  const T* bias = static_cast<const T*>(call.bias);
  const float one = call.one;
  T* y = static_cast<T*>(call.y) + row * call.width;
  if (bias == nullptr) {
    for_vectors(call.width, [&](std::size_t i, auto part) {
      const Floats normed = (load_some(sum + i, part) - mean) * rstd;
      store_some(y + i, normed * (load_some(gain + i, part) + one), part);
    });
  } else {
    for_vectors(call.width, [&](std::size_t i, auto part) {
      const Floats normed = (load_some(sum + i, part) - mean) * rstd;
      store_some(y + i, fused(normed, load_some(gain + i, part) + one, load_some(bias + i, part)),
                 part);
    });
  }
}

template <class T>
void forward(const NormRows& call) {
  const DropoutKey none;
  DropoutFactors factors(call.dropout != nullptr ? *call.dropout : none);
  for (std::size_t row = call.begin; row < call.end; ++row) {
    if (call.branch != nullptr) {
      add_branch<T>(call, row, call.dropout != nullptr ? &factors : nullptr);
    }
    forward_row<T>(call, row);
  }
}

// Averages over a row, with g = dy gain and n what was normalised.
struct Averages {
  Floats g;
  Floats gn;
};

template <class T>
Averages backward_sums(const NormBackwardRows& call, std::size_t row, float mean, float rstd) {
  const T* dy = static_cast<const T*>(call.dy) + row * call.width;
  const T* sum = static_cast<const T*>(call.sum) + row * call.width;
  const T* gain = static_cast<const T*>(call.gain);
  const float one = call.one;
  float* dgain = call.dgain;
  float* dbias = call.dbias;
  Sum g_sum, gn_sum;
  for_vectors_in_turn(call.width, [&](std::size_t i, auto part, int turn) {
    const Floats d = load_some(dy + i, part);
    const Floats n = (load_some(sum + i, part) - mean) * rstd;
    const Floats g = d * (load_some(gain + i, part) + one);
    g_sum.parts[turn] += g;
    gn_sum.parts[turn] = fused(g, n, gn_sum.parts[turn]);
    store_some(dgain + i, fused(d, n, load_some(dgain + i, part)), part);
    if (dbias != nullptr) store_some(dbias + i, load_some(dbias + i, part) + d, part);
  });
  const auto width = static_cast<float>(call.width);
  return {splat(call.subtracts_mean ? g_sum.total() / width : 0), splat(gn_sum.total() / width)};
}

template <class T>
void drop_row(const NormBackwardRows& call, std::size_t row, DropoutFactors* factors) {
  const std::size_t first = row * call.width;
  const T* from = static_cast<const T*>(call.dsum) + first;
  T* to = static_cast<T*>(call.dbranch) + first;
  if (factors == nullptr) {
    std::memcpy(to, from, call.width * sizeof(T));
    return;
  }
  factors->for_pieces(call.dropout->first + first, call.width,
                      [&](std::size_t done, std::size_t count, const float* f) {
                        for_vectors(count, [&](std::size_t i, auto part) {
                          store_some(to + done + i,
                                     load_some(from + done + i, part) * load_some(f + i, part),
                                     part);
                        });
                      });
}

// With averages over the row, the gradient of the sum is rstd (g - average(g) - n
// average(g n)); an RMS norm lacks the first of them.
template <class T>
void backward_row(const NormBackwardRows& call, std::size_t row) {
  const float mean = call.subtracts_mean ? call.mean[row] : 0;
  const float rstd = call.rstd[row];
  const Averages average = backward_sums<T>(call, row, mean, rstd);
  const std::size_t first = row * call.width;
  const T* dy = static_cast<const T*>(call.dy) + first;
  const T* sum = static_cast<const T*>(call.sum) + first;
  const T* gain = static_cast<const T*>(call.gain);
  const T* dresidual = static_cast<const T*>(call.dresidual);
  T* dsum = static_cast<T*>(call.dsum) + first;
  const float one = call.one;
  const auto through = [&](std::size_t i, auto part) {
    const Floats n = (load_some(sum + i, part) - mean) * rstd;
    const Floats g = fused(load_some(dy + i, part), load_some(gain + i, part) + one, -average.g);
    return fused(-n, average.gn, g) * rstd;
  };
  if (dresidual == nullptr) {
    for_vectors(call.width,
                [&](std::size_t i, auto part) { store_some(dsum + i, through(i, part), part); });
  } else {
    for_vectors(call.width, [&](std::size_t i, auto part) {
      store_some(dsum + i, through(i, part) + load_some(dresidual + first + i, part), part);
    });
  }
}

template <class T>
void backward(const NormBackwardRows& call) {
  const DropoutKey none;
  DropoutFactors factors(call.dropout != nullptr ? *call.dropout : none);
  for (std::size_t row = call.begin; row < call.end; ++row) {
    backward_row<T>(call, row);
    if (call.dbranch != nullptr) {
      drop_row<T>(call, row, call.dropout != nullptr ? &factors : nullptr);
    }
  }
}

template <class T>
void add_parts(void* gradient, const float* parts, std::size_t count, std::size_t stride,
               std::size_t columns) {
  T* to = static_cast<T*>(gradient);
  for_vectors(columns, [&](std::size_t i, auto part) {
    Floats sum = splat(0);
    for (std::size_t k = 0; k < count; ++k) sum += load_some(parts + k * stride + i, part);
    store_some(to + i, load_some(to + i, part) + sum, part);
  });
}

}  // namespace

const NormKernels norm_kernels{
    .forward = {forward<float>, forward<BFloat16>, forward<Half>},
    .backward = {backward<float>, backward<BFloat16>, backward<Half>},
    .add_parts = {add_parts<float>, add_parts<BFloat16>, add_parts<Half>},
};

}  // namespace lockstep::cpu::LOCKSTEP_ISA
