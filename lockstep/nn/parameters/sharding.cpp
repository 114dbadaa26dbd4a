#include "lockstep/nn/parameters/sharding.h"

#include <algorithm>
#include <numeric>

namespace lockstep::nn {
namespace {

// The largest blocks first, each to the worker that has least.
std::vector<int> deal_out(const FlatParameters& flat, int workers) {
  std::vector<std::size_t> order(flat.blocks());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return flat.range(a).elements > flat.range(b).elements;
  });
  std::vector<std::size_t> held(static_cast<std::size_t>(workers));
  std::vector<int> owners(flat.blocks());
  for (const std::size_t block : order) {
    const auto least = std::ranges::min_element(held);
    *least += flat.range(block).elements;
    owners[block] = static_cast<int>(least - held.begin());
  }
  return owners;
}

}  // namespace

std::size_t Shards::block_multiple(const Sharding& sharding) {
  if (!sharding.any()) return FlatParameters::kAlignment;
  const bool cuts = sharding.partition == Partition::kTensor;
  return cuts ? kAlignment * static_cast<std::size_t>(sharding.workers) : kAlignment;
}

Shards::Shards(const FlatParameters& flat, const Sharding& sharding)
    : sharding_(sharding), firsts_(flat.blocks()) {
  for (std::size_t block = 0; block < flat.blocks(); ++block) {
    ranges_.push_back(flat.range(block));
    has_experts_.push_back(flat.has_experts(block));
  }
  owners_ = deal_out(flat, sharding.workers);
  for (int worker = 0; worker < sharding.workers; ++worker) {
    std::size_t first = 0;
    for (std::size_t block = flat.blocks(); block-- > 0;) {
      if (worker == sharding.worker) firsts_[block] = first;
      first += of(block, worker).elements;
    }
    elements_ = std::max(elements_, first);
  }
}

FlatRange Shards::of(std::size_t block, int worker) const {
  const FlatRange& range = ranges_.at(block);
  if (sharding_.partition == Partition::kLayer) {
    return {range.first, owners_[block] == worker ? range.elements : 0};
  }
  const bool experts = has_experts_[block];
  const std::size_t each =
      range.elements / static_cast<std::size_t>(sharding_.workers_with(experts));
  const int place = sharding_.place_of(experts, worker);
  return {range.first + each * static_cast<std::size_t>(place), each};
}

FlatRange Shards::mine_among_parts(std::size_t block) const {
  return {firsts_.at(block), mine(block).elements};
}

}  // namespace lockstep::nn
