#include "lockstep/nn/tensor_shard.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::nn {

Extent share_of(std::int64_t extent, const TensorGroup& group) {
  const std::int64_t each = extent / group.size;
  const std::int64_t more = extent % group.size;
  return {.first = group.rank * each + std::min<std::int64_t>(group.rank, more),
          .count = each + (group.rank < more ? 1 : 0)};
}

TensorShard shard_of(std::size_t dimension, std::vector<std::int64_t> segments,
                     const TensorGroup& group) {
  if (group.size == 1) return {};
  return {.dimension = dimension, .segments = std::move(segments), .group = group};
}

Shape logical_shape(const Shape& local, const TensorShard& shard) {
  if (shard.is_replicated()) return local;
  std::vector<std::int64_t> extents(local.extents().begin(), local.extents().end());
  extents.at(shard.dimension) =
      std::accumulate(shard.segments.begin(), shard.segments.end(), std::int64_t{0});
  return Shape(extents);
}

void for_runs(const Shape& local, const TensorShard& shard, std::size_t first, std::size_t elements,
              const std::function<void(const ShardRun&)>& run) {
  if (elements == 0) return;
  if (shard.is_replicated()) return run({.local = first, .logical = first, .elements = elements});
  const std::size_t end = first + elements;
  // An outer index counts what lies before the divided dimension, an inner one what lies behind it.
  std::size_t inner = 1;
  for (std::size_t i = shard.dimension + 1; i < static_cast<std::size_t>(local.dimensions()); ++i) {
    inner *= static_cast<std::size_t>(local[static_cast<int>(i)]);
  }
  const auto local_extent = static_cast<std::size_t>(local[static_cast<int>(shard.dimension)]);
  const auto logical_extent =
      static_cast<std::size_t>(logical_shape(local, shard)[static_cast<int>(shard.dimension)]);
  const std::size_t line = local_extent * inner;  // elements of one outer index
  for (std::size_t outer = first / line; outer * line < end; ++outer) {
    std::size_t at = outer * line;                        // in the shard
    std::size_t origin = outer * logical_extent * inner;  // of a segment in the logical parameter
    for (const std::int64_t segment : shard.segments) {
      const Extent mine = share_of(segment, shard.group);
      const std::size_t next = at + static_cast<std::size_t>(mine.count) * inner;
      const std::size_t from = std::max(at, first);
      const std::size_t to = std::min(next, end);
      if (from < to) {
        const std::size_t logical = origin + static_cast<std::size_t>(mine.first) * inner;
        run({.local = from, .logical = logical + (from - at), .elements = to - from});
      }
      at = next;
      origin += static_cast<std::size_t>(segment) * inner;
    }
  }
}

}  // namespace lockstep::nn
