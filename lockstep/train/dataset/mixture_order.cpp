#include "lockstep/train/dataset/mixture_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/token_file/windows.h"

namespace lockstep::train {

std::vector<std::uint64_t> mixture_quotas(std::span<const double> weights) {
  if (weights.empty() || weights.size() > kMixtureBlock) {
    fail(ErrorCode::kInvalidArgument, "a mixture has {} files; it may have 1 to {}", weights.size(),
         kMixtureBlock);
  }
  double sum = 0;
  for (const double weight : weights) {
    if (!std::isfinite(weight) || weight <= 0) {
      fail(ErrorCode::kInvalidArgument, "a file of a mixture has the weight {}; it must be over 0",
           weight);
    }
    sum += weight;
  }
  std::vector<std::uint64_t> quotas;
  std::vector<double> missing;  // of the exact share
  for (const double weight : weights) {
    const double share = weight / sum * static_cast<double>(kMixtureBlock);
    quotas.push_back(std::max<std::uint64_t>(static_cast<std::uint64_t>(share), 1));
    missing.push_back(share - static_cast<double>(quotas.back()));
  }
  // One at a time to, or from, the file that is furthest from its share; the first of equal ones.
  std::uint64_t all = std::accumulate(quotas.begin(), quotas.end(), std::uint64_t{0});
  while (all != kMixtureBlock) {
    const bool more = all < kMixtureBlock;
    std::size_t which = 0;
    for (std::size_t i = 1; i < quotas.size(); ++i) {
      const bool may = more || quotas[i] > 1;
      const bool further = more ? missing[i] > missing[which] : missing[i] < missing[which];
      if (may && (further || (!more && quotas[which] == 1))) which = i;
    }
    quotas[which] += more ? 1 : std::uint64_t(-1);
    missing[which] += more ? -1 : 1;
    all += more ? 1 : std::uint64_t(-1);
  }
  return quotas;
}

MixtureOrder::MixtureOrder(std::vector<std::uint64_t> quotas, std::uint64_t seed)
    : quotas_(std::move(quotas)), seed_(seed), block_(0) {
  make_block(0);
}

void MixtureOrder::make_block(std::uint64_t block) {
  block_ = block;
  places_.clear();
  std::vector<std::uint64_t> ends(quotas_.size());
  std::partial_sum(quotas_.begin(), quotas_.end(), ends.begin());
  std::vector<std::uint64_t> next;
  for (const std::uint64_t quota : quotas_) next.push_back(quota * block);
  for (std::uint64_t i = 0; i < kMixtureBlock; ++i) {
    const std::uint64_t drawn = data::shuffled(i, kMixtureBlock, seed_, block);
    const auto file =
        static_cast<std::size_t>(std::ranges::upper_bound(ends, drawn) - ends.begin());
    places_.push_back({.file = file, .number = next[file]++});
  }
}

MixtureOrder::Place MixtureOrder::place(std::uint64_t sequence) {
  if (sequence / kMixtureBlock != block_) make_block(sequence / kMixtureBlock);
  return places_[sequence % kMixtureBlock];
}

std::vector<MixtureOrder::Place> validation_mixture(std::span<const double> weights,
                                                    std::span<const std::uint64_t> counts) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const std::uint64_t all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  std::vector<std::uint64_t> taken(counts.size());
  std::vector<MixtureOrder::Place> order;
  order.reserve(all);
  while (order.size() < all) {
    std::size_t which = counts.size();
    double furthest = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (taken[i] == counts[i]) continue;
      const double behind =
          weights[i] / sum * static_cast<double>(order.size() + 1) - static_cast<double>(taken[i]);
      if (which == counts.size() || behind > furthest) {
        which = i;
        furthest = behind;
      }
    }
    order.push_back({.file = which, .number = taken[which]++});
  }
  return order;
}

}  // namespace lockstep::train
