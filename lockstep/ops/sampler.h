// Samples the next token from logits: the computation of ops::Sample.
//
// In this order: logits are divided by the temperature; the `top_k` most probable tokens are kept,
// and of these the smallest set whose probabilities sum to `top_p`; one of them is drawn. Ties go
// to the smaller token id. A draw is a pure function of seed, position and logits.
//
// A token's weight, its probability times a common factor, is a whole multiple of 2^-40 of the
// largest weight. Sums of weights are sums of integers then, exact in any order, so a GPU that adds
// in parallel chooses what the CPU chooses.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

// Code for CPUs and GPUs.
#ifdef __CUDACC__
#define LOCKSTEP_ANY_DEVICE __host__ __device__
#else
#define LOCKSTEP_ANY_DEVICE
#endif

namespace lockstep::ops {

struct ChoiceOptions {
  double temperature = 1;  // 0: always the most probable token
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;        // over 0

  friend bool operator==(const ChoiceOptions&, const ChoiceOptions&) = default;
};

// Throws Error(kInvalidArgument) for options out of their range.
void check_choice(const ChoiceOptions& options);
// Throws Error(kInvalidArgument) that says why no token can be sampled from these logits.
[[noreturn]] void fail_choice(std::size_t logits, bool all_are_minus_infinity);

// In units of 2^-40; `factor` is 1 / temperature.
inline constexpr double kWeightUnit = 0x1p40;
LOCKSTEP_ANY_DEVICE inline std::uint64_t weight_of(float logit, float largest, double factor) {
  const double below = static_cast<double>(logit) - static_cast<double>(largest);
  // The exponential in double, rounded to float: nearly always the same by any library.
  const auto weight =
      static_cast<float>(std::exp(static_cast<double>(static_cast<float>(below * factor))));
  return static_cast<std::uint64_t>(static_cast<double>(weight) * kWeightUnit);
}

// In [0, 1), a multiple of 2^-53.
double uniform_of(std::uint64_t seed, std::uint64_t position);

// The position of a draw in `total`: the drawn token is the first whose cumulative weight is
// larger.
LOCKSTEP_ANY_DEVICE inline std::uint64_t place_of(double uniform, std::uint64_t total) {
  const auto place = static_cast<std::uint64_t>(uniform * static_cast<double>(total));
  return place < total ? place : total - 1;
}
// The least sum of weights that has the probability top_p.
LOCKSTEP_ANY_DEVICE inline std::uint64_t share_of(double top_p, std::uint64_t total) {
  const auto share = static_cast<std::uint64_t>(std::ceil(top_p * static_cast<double>(total)));
  return share < 1 ? 1 : share < total ? share : total;
}

// On the CPU. Keeps its workspace. One thread at a time.
class Sampler {
 public:
  // Throws Error(kInvalidArgument) for options out of their range.
  explicit Sampler(const ChoiceOptions& options);

  // The token for a position of the text. Throws Error(kInvalidArgument) without logits, where one
  // is NaN or +infinity, and where all are -infinity.
  std::int32_t sample(std::span<const float> logits, std::uint64_t seed, std::uint64_t position);

 private:
  struct Candidate {
    float logit = 0;
    std::int32_t token = 0;
  };
  static bool likelier(const Candidate& a, const Candidate& b);

  void take_all(std::span<const float> logits, float largest);
  void take_top_k(std::span<const float> logits);
  void weigh(float largest);
  void keep_top_p();
  std::int32_t draw(double uniform) const;

  ChoiceOptions options_;
  std::vector<Candidate> candidates_;
  std::vector<std::uint64_t> weights_;  // of the candidates
};

}  // namespace lockstep::ops

#undef LOCKSTEP_ANY_DEVICE
