#include "lockstep/ops/sampler.h"

#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"

namespace lockstep::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The first of the largest. Throws where there is none to be chosen.
std::size_t likeliest(std::span<const float> logits) {
  std::size_t best = 0;
  bool sound = !logits.empty();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sound = sound && logits[i] < kInfinity;  // false for NaN too
    if (logits[i] > logits[best]) best = i;
  }
  if (sound && logits[best] > -kInfinity) return best;
  fail_choice(logits.size(), sound);
}

}  // namespace

void check_choice(const ChoiceOptions& options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
    fail(ErrorCode::kInvalidArgument,
         "the temperature is {}; it must be 0 (always the most probable token) or more",
         options.temperature);
  }
  if (options.top_k < 0) {
    fail(ErrorCode::kInvalidArgument,
         "top-k is {}; it must be 0 (all tokens) or a number of tokens", options.top_k);
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    fail(ErrorCode::kInvalidArgument, "top-p is {}; it must be above 0 and at most 1 (all tokens)",
         options.top_p);
  }
}

void fail_choice(std::size_t logits, bool all_are_minus_infinity) {
  fail(ErrorCode::kInvalidArgument,
       "cannot sample a token from these {} logits: {}; the model's parameters are damaged, or its "
       "training diverged",
       logits, all_are_minus_infinity ? "all are -infinity" : "some are infinite or NaN");
}

double uniform_of(std::uint64_t seed, std::uint64_t position) {
  const RandomWords words = random_block(seed, position, 0);
  const std::uint64_t bits = std::uint64_t{words[1]} << 32 | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Sampler::Sampler(const ChoiceOptions& options) : options_(options) { check_choice(options_); }

bool Sampler::likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

std::int32_t Sampler::sample(std::span<const float> logits, std::uint64_t seed,
                             std::uint64_t position) {
  const std::size_t best = likeliest(logits);
  if (options_.temperature == 0 || options_.top_k == 1) return static_cast<std::int32_t>(best);
  const auto count = static_cast<std::int64_t>(logits.size());
  if (options_.top_k > 0 && options_.top_k < count) {
    take_top_k(logits);
  } else {
    take_all(logits, logits[best]);
  }
  weigh(logits[best]);
  if (options_.top_p < 1) keep_top_p();
  return draw(uniform_of(seed, position));
}

// In order of their numbers. What is so unlikely that its weight is 0 is left out at once.
void Sampler::take_all(std::span<const float> logits, float largest) {
  constexpr double kVanishes = 104;  // e^-104 is below every float
  const double least = static_cast<double>(largest) - kVanishes * options_.temperature;
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (static_cast<double>(logits[i]) < least) continue;
    candidates_.push_back({logits[i], static_cast<std::int32_t>(i)});
  }
}

// A heap holds the likeliest so far, the least likely of them on top; few others get past it.
void Sampler::take_top_k(std::span<const float> logits) {
  const auto k = static_cast<std::size_t>(options_.top_k);
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const Candidate one = {logits[i], static_cast<std::int32_t>(i)};
    if (candidates_.size() == k) {
      if (!likelier(one, candidates_.front())) continue;
      std::pop_heap(candidates_.begin(), candidates_.end(), likelier);
      candidates_.back() = one;
    } else {
      candidates_.push_back(one);
    }
    std::push_heap(candidates_.begin(), candidates_.end(), likelier);
  }
  std::sort(candidates_.begin(), candidates_.end(), likelier);
}

void Sampler::weigh(float largest) {
  const double factor = 1 / options_.temperature;
  weights_.resize(candidates_.size());
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    weights_[i] = weight_of(candidates_[i].logit, largest, factor);
  }
}

void Sampler::keep_top_p() {
  std::uint64_t total = 0;
  for (const std::uint64_t weight : weights_) total += weight;
  // Candidates below their even share of what may be left out cannot be needed: all of them
  // together weigh less than that. So few are left to be sorted.
  const double share = (1 - options_.top_p) * static_cast<double>(total) /
                       static_cast<double>(candidates_.size()) * (1 - 1e-6);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (static_cast<double>(weights_[i]) >= share) candidates_[kept++] = candidates_[i];
  }
  candidates_.resize(kept);
  std::sort(candidates_.begin(), candidates_.end(), likelier);
  weigh(candidates_.front().logit);
  const std::uint64_t enough = share_of(options_.top_p, total);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    sum += weights_[i];
    if (sum < enough) continue;
    candidates_.resize(i + 1);
    weights_.resize(i + 1);
  }
}

std::int32_t Sampler::draw(double uniform) const {
  std::uint64_t total = 0;
  for (const std::uint64_t weight : weights_) total += weight;
  const std::uint64_t place = place_of(uniform, total);
  std::uint64_t sum = 0;
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    sum += weights_[i];
    if (sum <= place) continue;
    chosen = i;
    break;
  }
  return candidates_[chosen].token;
}

}  // namespace lockstep::ops
