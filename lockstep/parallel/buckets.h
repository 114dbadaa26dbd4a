// Which gradients are reduced together, and when.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/nn/flat_parameters.h"

namespace lockstep::parallel {

// Elements of the row of gradients that are complete once a block has finished backward.
struct Segment {
  nn::FlatRange range;
  std::size_t ready_after = 0;  // block
};
using Bucket = Segment;

// The row in the order in which backward completes it: a segment for each block with parameters.
std::vector<Segment> segments_of(const nn::FlatParameters& flat);

struct BucketSizes {
  std::size_t first = std::size_t{1} << 20;  // bytes
  std::size_t others = std::size_t{25} << 20;
};

// Neighbouring segments come together as long as they fit; one that is larger than a bucket is cut
// into equal parts, so that nothing waits for a later block. In the order of `segments`; every
// element of them is in one bucket.
std::vector<Bucket> plan_buckets(std::span<const Segment> segments, std::size_t element_bytes,
                                 const BucketSizes& sizes);

}  // namespace lockstep::parallel
