// Which gradients are reduced together, and when.
//
// Backward completes the flat buffer of gradients from its start on, about as fast everywhere. So a
// bucket is on its way once backward has passed its end; what is left to do when all of backward
// has ended is the last one. Hence the buckets at the end of the flat buffer are smaller.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/nn/parameters/flat_parameters.h"

namespace lockstep::parallel {

// Elements of the flat buffer of gradients that are complete once backward of a block has ended, or
// has said that it adds no more to them.
struct Segment {
  nn::FlatRange range;
  std::size_t ready_after = 0;  // block
};
using Bucket = Segment;

// How far backward has come.
struct Progress {
  std::size_t block = 0;
  // Of the flat buffer: what this block's backward adds no more to, as far as was told last;
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
  // Of segments that less than a whole bucket follows.
  std::size_t last() const { return std::max<std::size_t>(others / 4, 1); }
};

// Neighbouring segments come together as long as they fit; one that is larger than a bucket is cut
// into equal parts, after a first bucket of its own size, so that nothing waits for a later block.
// In the order of `segments`; every element of them is in one bucket.
std::vector<Bucket> plan_buckets(std::span<const Segment> segments, std::size_t element_bytes,
                                 const BucketSizes& sizes);

}  // namespace lockstep::parallel
