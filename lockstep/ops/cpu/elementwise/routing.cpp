// The routing of tokens to experts. Every thread has tokens or routed rows of its own; only the
// grouping of pairs, which is a pass over small integers, runs on one. Numbers of 16 bits go
// through a few floats on the stack.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "lockstep/ops/check.h"
#include "lockstep/ops/cpu/elementwise/elementwise.h"
#include "lockstep/ops/cpu/elementwise/kernels.h"
#include "lockstep/ops/cpu/team/split.h"
#include "lockstep/ops/element.h"

namespace lockstep::cpu {
namespace {

constexpr std::size_t kPart = 256;
using PartOfRow = std::array<float, kPart>;

std::size_t extent(const Tensor& tensor, int dimension) {
  return static_cast<std::size_t>(tensor.shape()[dimension]);
}

// f(first, count) for parts of a row that fit on the stack.
template <class F>
void in_row_parts(std::size_t width, F&& f) {
  for (std::size_t first = 0; first < width; first += kPart)
    f(first, std::min(kPart, width - first));
}

std::byte* element(const Tensor& matrix, std::size_t row, std::size_t column) {
  return matrix.data() + (row * extent(matrix, 1) + column) * size_of(matrix.dtype());
}

// The k largest logits of a token, largest first, and the softmax of them by pair.
template <class T>
void choose_experts(const T* logits, std::size_t experts, std::size_t chosen,
                    std::int32_t* choice) {
  for (std::size_t j = 0; j < chosen; ++j) {
    std::int32_t best = -1;
    double most = 0;
    for (std::size_t e = 0; e < experts; ++e) {
      const auto expert = static_cast<std::int32_t>(e);
      if (std::find(choice, choice + j, expert) != choice + j) continue;
      const double logit = ops::to_double(logits[e]);
      const bool is_better = best < 0 || logit > most || (std::isnan(most) && !std::isnan(logit));
      if (!is_better) continue;
      best = expert;
      most = logit;
    }
    choice[j] = best;
  }
}

// Counts, and the row of every pair: those of an expert in the order of the tokens.
void group_pairs(const ops::Route& call) {
  const auto choice = call.experts.as<const std::int32_t>();
  const auto rows = call.rows.as<std::int32_t>();
  const auto pairs = call.pairs.as<std::int32_t>();
  const auto counts = call.counts.as<std::int32_t>();
  std::fill(counts.begin(), counts.end(), 0);
  for (const std::int32_t expert : choice) ++counts[static_cast<std::size_t>(expert)];
  std::int32_t end = 0;  // counts become the next row of every expert, and then counts again
  for (std::int32_t& count : counts) end += std::exchange(count, end);
  for (std::size_t pair = 0; pair < choice.size(); ++pair) {
    const std::int32_t row = counts[static_cast<std::size_t>(choice[pair])]++;
    rows[pair] = row;
    pairs[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(pair);
  }
  std::int32_t first = 0;
  for (std::int32_t& next : counts) first += next -= first;
}

}  // namespace

void run(const Cpu& cpu, const ops::Route& call) {
  ops::check(call);
  const std::size_t tokens = extent(call.logits, 0);
  const std::size_t experts = extent(call.logits, 1);
  const std::size_t chosen = extent(call.experts, 1);
  std::int32_t* const choice = call.experts.as<std::int32_t>().data();
  const std::size_t bytes = tokens * experts * chosen * sizeof(double);
  ops::with_float_type(call.logits.dtype(), [&]<class T>(T) {
    const T* const logits = call.logits.as<const T>().data();
    split(cpu.team, tokens, 1, bytes, [&](Range range) {
      for (std::size_t token = range.begin; token < range.end; ++token) {
        choose_experts(logits + token * experts, experts, chosen, choice + token * chosen);
      }
    });
    group_pairs(call);
    const std::int32_t* const rows = call.rows.as<const std::int32_t>().data();
    float* const weights = call.weights.as<float>().data();
    split(cpu.team, tokens, 1, bytes, [&](Range range) {
      for (std::size_t token = range.begin; token < range.end; ++token) {
        const auto logit_of = [&](std::size_t j) {
          const auto expert = static_cast<std::size_t>(choice[token * chosen + j]);
          return ops::to_double(logits[token * experts + expert]);
        };
        const double most = logit_of(0);
        double sum = 0;
        for (std::size_t j = 0; j < chosen; ++j) sum += std::exp(logit_of(j) - most);
        for (std::size_t j = 0; j < chosen; ++j) {
          weights[rows[token * chosen + j]] =
              static_cast<float>(std::exp(logit_of(j) - most) / sum);
        }
      }
    });
  });
}

void run(const Cpu& cpu, const ops::RouteBackward& call) {
  ops::check(call);
  const std::size_t tokens = extent(call.logits, 0);
  const std::size_t experts = extent(call.logits, 1);
  const std::size_t chosen = extent(call.experts, 1);
  ops::check_indices(call.experts, call.logits.shape()[1], "route_backward: experts");
  ops::check_indices(call.rows, static_cast<std::int64_t>(tokens * chosen), "route_backward: rows");
  const std::int32_t* const choice = call.experts.as<const std::int32_t>().data();
  const std::int32_t* const rows = call.rows.as<const std::int32_t>().data();
  const float* const weights = call.weights.as<const float>().data();
  const float* const dweights = call.dweights.as<const float>().data();
  const float* const balance =
      ops::is_given(call.balance) ? call.balance.as<const float>().data() : nullptr;
  ops::with_float_type(call.logits.dtype(), [&]<class T>(T) {
    const T* const all = call.logits.as<const T>().data();
    T* const gradients = call.dlogits.as<T>().data();
    // dlogits may lie on logits: what a token needs of them is computed before it is written.
    const auto backward = [&](std::size_t token) {
      const T* const logits = all + token * experts;
      double most = -INFINITY, sum = 0, balanced = 0, mean = 0;
      if (balance != nullptr) {
        for (std::size_t e = 0; e < experts; ++e) most = std::max(most, ops::to_double(logits[e]));
        for (std::size_t e = 0; e < experts; ++e) {
          const double share = std::exp(ops::to_double(logits[e]) - most);
          sum += share;
          balanced += share * static_cast<double>(balance[e]);
        }
        balanced /= sum;
      }
      const auto weight = [&](std::size_t j) {
        return static_cast<double>(weights[rows[token * chosen + j]]);
      };
      const auto dweight = [&](std::size_t j) {
        return static_cast<double>(dweights[rows[token * chosen + j]]);
      };
      for (std::size_t j = 0; j < chosen; ++j) mean += weight(j) * dweight(j);
      for (std::size_t e = 0; e < experts; ++e) {
        double gradient = 0;
        if (balance != nullptr) {
          gradient = std::exp(ops::to_double(logits[e]) - most) / sum *
                     (static_cast<double>(balance[e]) - balanced);
        }
        for (std::size_t j = 0; j < chosen; ++j) {
          if (choice[token * chosen + j] != static_cast<std::int32_t>(e)) continue;
          gradient += weight(j) * (dweight(j) - mean);
        }
        gradients[token * experts + e] = ops::rounded<T>(gradient);
      }
    };
    split(cpu.team, tokens, 1, tokens * experts * (chosen + 2) * sizeof(double), [&](Range range) {
      for (std::size_t token = range.begin; token < range.end; ++token) backward(token);
    });
  });
}

void run(const Cpu& cpu, const ops::GatherTokens& call) {
  ops::check(call);
  ops::check_indices(call.pairs, call.x.shape()[0] * call.experts_per_token,
                     "gather_tokens: pairs");
  const std::int32_t* const pairs = call.pairs.as<const std::int32_t>().data();
  const auto chosen = static_cast<std::int32_t>(call.experts_per_token);
  const std::size_t row_bytes = extent(call.x, 1) * size_of(call.x.dtype());
  split(cpu.team, extent(call.y, 0), 1, 2 * call.y.bytes(), [&](Range range) {
    for (std::size_t row = range.begin; row < range.end; ++row) {
      const auto token = static_cast<std::size_t>(pairs[row] / chosen);
      std::memcpy(element(call.y, row, 0), element(call.x, token, 0), row_bytes);
    }
  });
}

void run(const Cpu& cpu, const ops::CombineTokens& call) {
  ops::check(call);
  ops::check_indices(call.rows, call.routed.shape()[0], "combine_tokens: rows");
  const std::int32_t* const rows = call.rows.as<const std::int32_t>().data();
  const std::size_t chosen = extent(call.rows, 1);
  const std::size_t width = extent(call.y, 1);
  const float* const weights =
      ops::is_given(call.weights) ? call.weights.as<const float>().data() : nullptr;
  const ElementwiseKernels& kernels = elementwise_kernels(cpu.isa);
  const auto widen = kernels.cast[call.y.dtype()][DType::kF32];
  const auto narrow = kernels.cast[DType::kF32][call.y.dtype()];
  const bool adds = ops::is_given(call.residual);
  const std::size_t bytes = (chosen + 2) * call.y.bytes();
  split(cpu.team, extent(call.y, 0), 1, bytes, [&](Range range) {
    PartOfRow sum, routed;
    for (std::size_t token = range.begin; token < range.end; ++token) {
      in_row_parts(width, [&](std::size_t first, std::size_t count) {
        if (adds) {
          widen(element(call.residual, token, first), sum.data(), count);
        } else {
          sum.fill(0);
        }
        for (std::size_t j = 0; j < chosen; ++j) {
          const auto row = static_cast<std::size_t>(rows[token * chosen + j]);
          const float weight = weights == nullptr ? 1 : weights[row];
          widen(element(call.routed, row, first), routed.data(), count);
          for (std::size_t i = 0; i < count; ++i) sum[i] += weight * routed[i];
        }
        narrow(sum.data(), element(call.y, token, first), count);
      });
    }
  });
}

void run(const Cpu& cpu, const ops::WeightRows& call) {
  ops::check(call);
  const std::size_t width = extent(call.x, 1);
  const float* const weights = call.weights.as<const float>().data();
  float* const dweights = call.dweights.as<float>().data();
  const ElementwiseKernels& kernels = elementwise_kernels(cpu.isa);
  const auto widen = kernels.cast[call.x.dtype()][DType::kF32];
  const auto scale = kernels.scale[call.x.dtype()];
  split(cpu.team, extent(call.x, 0), 1, 4 * call.x.bytes(), [&](Range range) {
    PartOfRow x, dx;
    for (std::size_t row = range.begin; row < range.end; ++row) {
      double sum = 0;
      in_row_parts(width, [&](std::size_t first, std::size_t count) {
        widen(element(call.x, row, first), x.data(), count);
        widen(element(call.dx, row, first), dx.data(), count);
        for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * dx[i];
      });
      dweights[row] = static_cast<float>(sum);
      scale(element(call.x, row, 0), weights[row], width);
      scale(element(call.dx, row, 0), weights[row], width);
    }
  });
}

}  // namespace lockstep::cpu
