// Dropout inside kernels: drops what the CPU drops (base/math/counter_rng.h).
//
// The host makes a DropoutArg; a thread turns it into a DropoutKey once, which reads the step, and
// then asks for the factors of elements by their index.
#pragma once

#include <cstdint>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/cuda/device/vector.cuh"

namespace lockstep::cuda {

struct DropoutArg {
  std::uint64_t seed = 0;
  ScalarArg step;
  std::uint64_t first = 0;      // the position of element 0
  std::uint32_t last_kept = 0;  // an element stays where its random word is not above
  float factor = 1;             // what a kept element is multiplied by
};

inline DropoutArg dropout_arg(const ops::Dropout& dropout) {
  const double keep = 1 - dropout.probability;
  const std::uint64_t limit = keep_limit(keep);
  return {.seed = dropout.seed,
          .step = scalar(dropout.step),
          .first = dropout.first,
          .last_kept = static_cast<std::uint32_t>(limit == 0 ? 0 : limit - 1),
          .factor = limit == 0 ? 0 : static_cast<float>(1 / keep)};
}

class DropoutKey {
 public:
  __device__ __forceinline__ explicit DropoutKey(const DropoutArg& arg)
      : seed_(arg.seed),
        step_(static_cast<std::uint64_t>(arg.step.get())),
        first_(arg.first),
        last_kept_(arg.last_kept),
        factor_(arg.factor) {}

  // What elements index to index + N - 1 are multiplied by: 0 or 1 / (1 - probability). N is 1, or
  // a multiple of 4, and then index is one too.
  template <int N>
  __device__ __forceinline__ Floats<N> factors(std::uint64_t index) const {
    Floats<N> result;
    const std::uint64_t position = first_ + index;
    if constexpr (N == 1) {
      const uint4 words = random_block(position / 4);
      const std::uint32_t low = (position & 1) != 0 ? words.y : words.x;
      const std::uint32_t high = (position & 1) != 0 ? words.w : words.z;
      result[0] = factor_of((position & 2) != 0 ? high : low);
    } else {
      static_assert(N % 4 == 0);
#pragma unroll
      for (int i = 0; i < N; i += 4) {
        const uint4 words = random_block(position / 4 + static_cast<unsigned>(i / 4));
        result[i] = factor_of(words.x);
        result[i + 1] = factor_of(words.y);
        result[i + 2] = factor_of(words.z);
        result[i + 3] = factor_of(words.w);
      }
    }
    return result;
  }

 private:
  __device__ __forceinline__ float factor_of(std::uint32_t word) const {
    return word <= last_kept_ ? factor_ : 0.0f;
  }

  // Philox4x32-10, as lockstep::random_block().
  __device__ __forceinline__ uint4 random_block(std::uint64_t block) const {
    auto w0 = static_cast<std::uint32_t>(block);
    auto w1 = static_cast<std::uint32_t>(block >> 32);
    auto w2 = static_cast<std::uint32_t>(step_);
    auto w3 = static_cast<std::uint32_t>(step_ >> 32);
    auto key_low = static_cast<std::uint32_t>(seed_);
    auto key_high = static_cast<std::uint32_t>(seed_ >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t even = std::uint64_t{0xd2511f53u} * w0;
      const std::uint64_t odd = std::uint64_t{0xcd9e8d57u} * w2;
      w0 = static_cast<std::uint32_t>(odd >> 32) ^ w1 ^ key_low;
      w1 = static_cast<std::uint32_t>(odd);
      w2 = static_cast<std::uint32_t>(even >> 32) ^ w3 ^ key_high;
      w3 = static_cast<std::uint32_t>(even);
      key_low += 0x9e3779b9u;
      key_high += 0xbb67ae85u;
    }
    return make_uint4(w0, w1, w2, w3);
  }

  std::uint64_t seed_;
  std::uint64_t step_;
  std::uint64_t first_;
  std::uint32_t last_kept_;
  float factor_;
};

}  // namespace lockstep::cuda
