// Helpers to write descriptions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/bench/ops/description.h"

namespace lockstep::bench {

inline OpField input(std::string name, DType dtype, const Shape& shape, const Fill& fill,
                     Freedom freedom = Freedom::kNone) {
  return {.name = std::move(name),
          .role = Role::kInput,
          .dtype = dtype,
          .shape = shape,
          .fill = fill,
          .freedom = freedom};
}

inline OpField output(std::string name, DType dtype, const Shape& shape, const Tolerance& tolerance,
                      Freedom freedom = Freedom::kNone) {
  return {.name = std::move(name),
          .role = Role::kOutput,
          .dtype = dtype,
          .shape = shape,
          .tolerance = tolerance,
          .freedom = freedom};
}

inline OpField updated(std::string name, DType dtype, const Shape& shape, const Fill& fill,
                       const Tolerance& tolerance, Freedom freedom = Freedom::kNone) {
  return {.name = std::move(name),
          .role = Role::kUpdated,
          .dtype = dtype,
          .shape = shape,
          .fill = fill,
          .tolerance = tolerance,
          .freedom = freedom};
}

inline bool is_narrow(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }
inline DType statistic(DType compute) { return compute == DType::kF64 ? compute : DType::kF32; }

// The stddev that gives sums of N products of it and normal numbers a stddev of 1.
inline double balanced(std::int64_t terms) {
  return 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, terms)));
}

// Half of the last place at 1, as a fraction.
double unit(DType dtype);

// The noise of a sum of N terms that has a stddev of about 1.
inline double noise_of_sum(std::int64_t terms) {
  return 8 + 4 * std::sqrt(static_cast<double>(terms));
}

// A slowing of every pair, from 1 to 4, in host memory as rotary positions take it. Cases hold it,
// since fields lie on the device.
class Slowing {
 public:
  explicit Slowing(std::int64_t pairs) : factors_(static_cast<std::size_t>(pairs)) {
    constexpr double kGoldenRatio = 0.6180339887498949;
    for (std::size_t i = 0; i < factors_.size(); ++i) {
      const double turned = kGoldenRatio * static_cast<double>(i + 1);
      factors_[i] = static_cast<float>(1 + 3 * (turned - std::floor(turned)));
    }
  }
  // Only to be read.
  Tensor tensor() const {
    auto* data = reinterpret_cast<std::byte*>(const_cast<float*>(factors_.data()));
    return {data, DType::kF32, {static_cast<std::int64_t>(factors_.size())}};
  }

 private:
  std::vector<float> factors_;
};

// Shapes of GPT-2 124M on 4 x 1024 tokens, what is timed.
struct Typical {
  static constexpr std::int64_t kBatch = 4;
  static constexpr std::int64_t kSequence = 1024;
  static constexpr std::int64_t kRows = kBatch * kSequence;
  static constexpr std::int64_t kWidth = 768;
  static constexpr std::int64_t kHeads = 12;
  static constexpr std::int64_t kHeadSize = 64;
  static constexpr std::int64_t kHidden = 3072;
  static constexpr std::int64_t kVocabulary = 50257;
  static constexpr std::int64_t kParameters = 124439808;
  static constexpr std::int64_t kLogitRows = 512;  // as many as a classifier holds at once
};

// Shapes that fill a GPU: GPT-2 124M on 64 x 1024 tokens, and a Llama on 4 x 4096.
struct Large {
  static constexpr std::int64_t kBatch = 64;
  static constexpr std::int64_t kRows = kBatch * Typical::kSequence;
  static constexpr std::int64_t kLlamaBatch = 4;
  static constexpr std::int64_t kLlamaSequence = 4096;
  static constexpr std::int64_t kLlamaRows = kLlamaBatch * kLlamaSequence;
  static constexpr std::int64_t kLlamaWidth = 2048;
  static constexpr std::int64_t kLlamaHidden = 8192;
  static constexpr std::int64_t kLlamaHeads = 32;
  static constexpr std::int64_t kLlamaKvHeads = 8;
  static constexpr std::int64_t kLlamaHeadSize = 64;
  static constexpr std::int64_t kLlamaVocabulary = 128256;
  static constexpr std::int64_t kPaddedVocabulary = 50304;  // of GPT-2
  static constexpr std::int64_t kMoreParameters = 1500000000;
};

// Of the bytes per second of a copy on the same GPU.
inline constexpr double kOptimizerBar = 0.90;
inline constexpr double kRowsBar = 0.85;  // norms, activations, losses

}  // namespace lockstep::bench
