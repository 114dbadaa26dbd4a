// Attention in cases: inputs, what the reference and what the CPU make of them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/base/math/half.h"
#include "lockstep/ops/cpu/attention/attention.h"
#include "lockstep/ops/cpu/attention/kernels.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::attention_cases {

using cpu::Cpu;
using cpu::ThreadTeam;
using ops::AttentionShape;
using ops::Heads;

enum class Mask { kNone, kSome, kAllOfOneSequence };

struct Case {
  AttentionShape shape;
  Mask mask = Mask::kNone;
  double dropout = 0;
  float size = 1;  // of the elements of q and k
  float sign = 1;  // of the scale
  float softcap = 0;
  std::string text() const {
    return fmt::format(
        "batch {} queries {} keys {} heads {}/{} of {} {} {} window {} mask {} dropout {} cap {} "
        "distances {}",
        shape.batch, shape.queries, shape.keys, shape.heads, shape.kv_heads, shape.head_size,
        shape.causal ? "causal" : "", name(shape.dtype), shape.window, static_cast<int>(mask),
        dropout, softcap, shape.distances);
  }
};

inline AttentionShape shape_of(std::int64_t batch, std::int64_t queries, std::int64_t keys,
                               std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size,
                               bool causal = false, DType dtype = DType::kF32) {
  return {batch, queries, keys, heads, kv_heads, head_size, causal, dtype};
}

inline float element(const Tensor& tensor, std::size_t i) {
  switch (tensor.dtype()) {
    case DType::kBF16:
      return to_float(tensor.as<BFloat16>()[i]);
    case DType::kF16:
      return to_float(tensor.as<Half>()[i]);
    default:
      return tensor.as<float>()[i];
  }
}

inline void set(const Tensor& tensor, std::size_t i, float x) {
  switch (tensor.dtype()) {
    case DType::kBF16:
      tensor.as<BFloat16>()[i] = to_bfloat16(x);
      return;
    case DType::kF16:
      tensor.as<Half>()[i] = to_half(x);
      return;
    default:
      tensor.as<float>()[i] = x;
  }
}

// A tensor that owns its elements.
struct Owned {
  Owned(DType dtype, const Shape& shape)
      : buffer(Tensor::bytes_of(dtype, shape)), tensor(buffer.tensor(dtype, shape)) {}
  operator const Tensor&() const { return tensor; }

  Buffer buffer;
  Tensor tensor;
};

inline Owned random_tensor(DType dtype, const Shape& shape, std::uint64_t seed, float size = 1) {
  Owned made(dtype, shape);
  for (std::size_t i = 0; i < made.tensor.elements(); ++i) {
    set(made, i, normal_at(seed, 0, i) * size);
  }
  return made;
}

constexpr float kUntouched = 77;

inline Owned untouched_tensor(DType dtype, const Shape& shape) {
  Owned made(dtype, shape);
  for (std::size_t i = 0; i < made.tensor.elements(); ++i) set(made, i, kUntouched);
  return made;
}

// Queries, keys and values with some columns of others before, between and behind them.
struct Inputs {
  static constexpr std::int64_t kBetween = 3;

  explicit Inputs(const Case& c)
      : query_columns(c.shape.heads * c.shape.head_size),
        key_columns(c.shape.kv_heads * c.shape.head_size),
        query_shape{c.shape.batch * c.shape.queries, query_columns + 2 * kBetween},
        key_shape{c.shape.batch * c.shape.keys, 2 * key_columns + 3 * kBetween},
        queries(random_tensor(c.shape.dtype, query_shape, 1, c.size)),
        keys_values(random_tensor(c.shape.dtype, key_shape, 2, c.size)),
        dout(random_tensor(c.shape.dtype, {c.shape.batch * c.shape.queries, query_columns}, 3)),
        bias(random_tensor(DType::kF32, {c.shape.heads, c.shape.distances}, 4)),
        mask(DType::kU8, {c.shape.batch, c.shape.keys}) {
    for (std::int64_t b = 0; b < c.shape.batch; ++b) {
      for (std::int64_t j = 0; j < c.shape.keys; ++j) {
        const auto at = static_cast<std::size_t>(b * c.shape.keys + j);
        const bool hidden = c.mask == Mask::kAllOfOneSequence ? b == 0 : (j * 7 + b) % 3 == 0;
        mask.tensor.as<std::uint8_t>()[at] = hidden ? 0 : 1;
      }
    }
  }

  Heads q() const { return {queries, kBetween}; }
  Heads k() const { return {keys_values, kBetween}; }
  Heads v() const { return {keys_values, 2 * kBetween + key_columns}; }
  Heads like_k(const Tensor& rows) const { return {rows, kBetween}; }
  Heads like_v(const Tensor& rows) const { return {rows, 2 * kBetween + key_columns}; }

  std::int64_t query_columns, key_columns;
  Shape query_shape, key_shape;
  Owned queries, keys_values, dout, bias, mask;
};

// All that forward and backward give.
struct Results {
  Results(const Case& c, const Inputs& in)
      : out(untouched_tensor(c.shape.dtype, in.dout.tensor.shape())),
        log_sum(untouched_tensor(DType::kF32, {c.shape.batch, c.shape.heads, c.shape.queries})),
        probabilities(untouched_tensor(
            DType::kF32, {c.shape.batch, c.shape.heads, c.shape.queries, c.shape.keys})),
        dqueries(untouched_tensor(c.shape.dtype, in.query_shape)),
        dkeys_values(untouched_tensor(c.shape.dtype, in.key_shape)),
        dbias(untouched_tensor(DType::kF32, in.bias.tensor.shape())) {}

  Owned out, log_sum, probabilities, dqueries, dkeys_values, dbias;
};

inline ops::Dropout dropout_of(const Case& c) {
  return {.probability = c.dropout, .seed = 11, .step = 5, .first = (std::uint64_t{1} << 34) - 64};
}

inline ops::Attention forward_of(const Case& c, const Inputs& in, const Results& to) {
  return {.shape = c.shape,
          .scale = c.sign / std::sqrt(static_cast<float>(c.shape.head_size)),
          .softcap = c.softcap,
          .q = in.q(),
          .k = in.k(),
          .v = in.v(),
          .key_mask = c.mask == Mask::kNone ? Tensor() : in.mask.tensor,
          .dropout = dropout_of(c),
          .out = to.out,
          .log_sum = to.log_sum,
          .probabilities = to.probabilities,
          .bias = in.bias};
}

inline ops::AttentionBackward backward_of(const Case& c, const Inputs& in, const Results& to) {
  const ops::Attention forward = forward_of(c, in, to);
  return {.shape = c.shape,
          .scale = forward.scale,
          .softcap = forward.softcap,
          .q = forward.q,
          .k = forward.k,
          .v = forward.v,
          .key_mask = forward.key_mask,
          .dropout = forward.dropout,
          .out = to.out,
          .log_sum = to.log_sum,
          .dout = in.dout,
          .dq = {to.dqueries, Inputs::kBetween},
          .dk = in.like_k(to.dkeys_values),
          .dv = in.like_v(to.dkeys_values),
          .bias = forward.bias,
          .dbias = to.dbias};
}

inline Results reference(const Case& c, const Inputs& in) {
  Results results(c, in);
  const auto ops = make_reference_ops();
  ops->run(forward_of(c, in, results));
  ops->run(backward_of(c, in, results));
  return results;
}

// An instruction set, or other kernels than it has.
struct Computer {
  Computer(Isa the_isa) : isa(the_isa), text(name(the_isa)) {}
  static Computer emulated_tiles() {
    Computer computer(Isa::kScalar);
    computer.kernels = &cpu::kAttentionEmulated;
    computer.text = "emulated tiles";
    return computer;
  }
  Isa isa;
  std::string text;
  const cpu::AttentionKernels* kernels = nullptr;
};

// Backward takes the out and log_sum of `given`, so that it is compared on the same inputs. The
// scratch memory is as large as it was asked for, and begins at an odd address.
inline Results blocked(const Case& c, const Inputs& in, const Computer& computer, int threads,
                       const Results* given) {
  Results results(c, in);
  ThreadTeam team(threads);
  const Cpu cpu{team, computer.isa};
  const auto run = [&](const auto& call, std::byte* memory) {
    if (computer.kernels == nullptr) return cpu::run(cpu, call, memory);
    cpu::run(cpu, *computer.kernels, call, memory);
  };
  const std::size_t bytes = cpu::attention_scratch(cpu, c.shape);
  const auto memory = std::make_unique<std::byte[]>(bytes + 1);
  std::byte* scratch = memory.get() + 1;
  std::memset(scratch, 0xff, bytes);  // NaNs
  run(forward_of(c, in, results), scratch);
  std::memset(scratch, 0xff, bytes);
  ops::AttentionBackward backward = backward_of(c, in, results);
  if (given != nullptr) {
    backward.out = given->out;
    backward.log_sum = given->log_sum;
  }
  run(backward, scratch);
  return results;
}

// How far two tensors are from each other, in parts of the largest element, or of 1, the size of
// what was summed up, where sums cancel.
inline double distance(const Tensor& actual, const Tensor& expected) {
  double largest = 1, most = 0;
  for (std::size_t i = 0; i < expected.elements(); ++i) {
    const double a = element(actual, i), e = element(expected, i);
    if (e != kUntouched && std::isfinite(e)) largest = std::max(largest, std::fabs(e));
    if (a == e) continue;  // infinities too
    const double apart = std::fabs(a - e);
    if (!(apart <= most))
      most = std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
  }
  return most / largest;
}

inline double tolerance(DType dtype) {
  if (dtype == DType::kBF16) return 0x1p-7;
  if (dtype == DType::kF16) return 0x1p-10;
  return 4e-6;
}

inline void expect_agreement(const Case& c, const Computer& computer, int threads = 2) {
  SCOPED_TRACE(c.text() + " on " + computer.text);
  const Inputs in(c);
  const Results expected = reference(c, in);
  const Results actual = blocked(c, in, computer, threads, &expected);
  const double limit = tolerance(c.shape.dtype);
  EXPECT_LE(distance(actual.out, expected.out), limit);
  EXPECT_LE(distance(actual.log_sum, expected.log_sum), 4e-6);
  EXPECT_LE(distance(actual.probabilities, expected.probabilities), 4e-6);
  EXPECT_LE(distance(actual.dqueries, expected.dqueries), limit);
  EXPECT_LE(distance(actual.dkeys_values, expected.dkeys_values), limit);
  // Of as many terms, which cancel.
  const auto terms = static_cast<double>(c.shape.batch * c.shape.queries * c.shape.keys);
  EXPECT_LE(distance(actual.dbias, expected.dbias), limit * std::sqrt(1 + terms / 1000));
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

constexpr DType kAttentionTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

}  // namespace lockstep::attention_cases
