// Tensor parallelism: which part of a logical parameter one rank holds.
//
// The ranks of a tensor group divide a parameter along one dimension: heads of attention, the width
// of a feed-forward network, the vocabulary. What is not divided is replicated: norms, positions,
// biases of what all ranks sum. A parameter that packs several matrices divides each segment:
//
//   qkv.weight   | queries    | keys  | values|      rows of the logical parameter
//   rank 0       | q0 | k0 | v0 |
//   rank 1       | q1 | k1 | v1 |
//
// With sequence parallelism the ranks also divide the tokens of everything between products: the
// residual stream, norms and dropout. So all activations of a layer are divided.
//
// Initial values, checkpoints and exports are those of logical parameters, so they do not depend on
// the number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/tensor/shape.h"

namespace lockstep::nn {

// A rank's position in its tensor group.
struct TensorGroup {
  int size = 1;
  int rank = 0;
  bool divides_tokens = false;  // sequence parallelism
  friend bool operator==(const TensorGroup&, const TensorGroup&) = default;
};

// A rank's share of an extent: as even as possible, the first ranks have one more.
struct Extent {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
Extent share_of(std::int64_t extent, const TensorGroup& group);

struct TensorShard {
  std::size_t dimension = 0;
  std::vector<std::int64_t> segments = {};  // logical extents of the dimension; empty: replicated
  TensorGroup group = {};

  bool is_replicated() const { return segments.empty(); }
  friend bool operator==(const TensorShard&, const TensorShard&) = default;
};

// The shard of a dimension with these segments; replicated in a group of one.
TensorShard shard_of(std::size_t dimension, std::vector<std::int64_t> segments,
                     const TensorGroup& group);

// The shape of the logical parameter whose shard has the shape `local`.
Shape logical_shape(const Shape& local, const TensorShard& shard);

// Elements that follow each other in the shard and in the logical parameter.
struct ShardRun {
  std::size_t local = 0;
  std::size_t logical = 0;
  std::size_t elements = 0;
};
// Calls `run` for elements [first, first + elements) of a shard, in order.
void for_runs(const Shape& local, const TensorShard& shard, std::size_t first, std::size_t elements,
              const std::function<void(const ShardRun&)>& run);

}  // namespace lockstep::nn
