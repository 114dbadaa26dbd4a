// A run of elements cut into one shard per rank, sizes differing by at most one.
#pragma once

#include <algorithm>
#include <cstddef>

namespace lockstep::parallel {

struct BucketShards {
  std::size_t elements;
  std::size_t ranks;

  // The first elements % ranks shards have one element more.
  std::size_t begin(std::size_t rank) const {
    return elements / ranks * rank + std::min(rank, elements % ranks);
  }
  std::size_t size(std::size_t rank) const { return begin(rank + 1) - begin(rank); }
  std::size_t largest() const { return size(0); }
};

}  // namespace lockstep::parallel
