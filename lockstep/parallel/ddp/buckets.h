// Gradient buckets: which gradients are reduced together, and when.
//
// Backward completes the flat buffer of gradients from its start on, at about constant speed. A
// bucket is reduced once backward has passed its end, so only the last bucket is left when backward
// ends. Hence the buckets at the end of the flat buffer are smaller.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/nn/parameters/flat_parameters.h"

namespace lockstep::parallel {

// Elements of the flat buffer of gradients that are final once backward of a block has ended, or
// has reported them as accumulated.
struct Segment {
  nn::FlatRange range;
  std::size_t ready_after = 0;  // block
  bool experts = false;         // which only some workers hold (nn/expert_group.h)
};
using Bucket = Segment;

// How far backward has come.
struct Progress {
  std::size_t block = 0;
  // The range of the flat buffer to which this block's backward adds no more, as last reported;
  // nothing: its backward has ended.
  std::optional<nn::FlatRange> done = std::nullopt;
};
bool is_ready(const Segment& segment, const Progress& progress);

// The flat buffer in the order in which backward completes it: a segment for each block with
// parameters.
std::vector<Segment> segments_of(const nn::FlatParameters& flat);

struct BucketSizes {
  std::size_t first = std::size_t{1} << 20;  // bytes
  std::size_t others = std::size_t{25} << 20;
  // The size near the end, where less than a whole bucket follows.
  std::size_t last() const { return std::max<std::size_t>(others / 4, 1); }
};

// Joins neighbouring segments that the same workers hold as long as they fit into a bucket. A
// segment larger than a bucket is cut into equal parts, after a first bucket of the first size, so
// that nothing waits for a later block. Buckets are in the order of `segments` and contain each
// element once.
std::vector<Bucket> plan_buckets(std::span<const Segment> segments, std::size_t element_bytes,
                                 const BucketSizes& sizes);

}  // namespace lockstep::parallel
