// A bias of attention's scores by the distance of a key from its query, as T5 learns it: a table of
// few buckets, each for some distances, and from it the bias of every distance, which attention
// adds.
//
//   distance   ... -9 -8 -7 -6 -5 -4 -3 -2 -1  0  1  2 ...    of a key: its place less the query's
//   bucket     ...  6  6  5  5  4  4  3  2  1  0  9 10 ...    of 16, up to a distance of 16
//
// Near distances have a bucket each. Farther ones share buckets that grow with the logarithm of the
// distance, up to max_distance; all beyond have the last bucket. Where attention is bidirectional
// half of the buckets are for keys behind the query, otherwise these are never seen.
#pragma once

#include <cstdint>

#include "lockstep/tensor/tensor.h"

namespace lockstep::ops {

struct RelativeBuckets {
  std::int64_t count = 32;
  std::int64_t max_distance = 128;
  bool bidirectional = false;

  // AttentionShape::distances
  std::int64_t distances() const { return 2 * max_distance + 1; }
  friend bool operator==(const RelativeBuckets&, const RelativeBuckets&) = default;
};

// That there is an even number of at least 4 buckets, and more distances than buckets of one.
bool are_valid(const RelativeBuckets& buckets);
// In f32, and rounded as transformers does it.
std::int64_t bucket_of(const RelativeBuckets& buckets, std::int64_t distance);

// bias[head][max_distance + d] = table[bucket_of(d)][first_head + head] for all distances d.
struct RelativeBias {
  RelativeBuckets buckets;
  Tensor table;  // [buckets, all heads] of a compute type
  std::int64_t first_head = 0;
  Tensor bias;  // [heads, distances] statistic
};

// dtable[bucket][first_head + head] += the sum of dbias over the distances of the bucket.
struct RelativeBiasBackward {
  RelativeBuckets buckets;
  Tensor dbias;  // [heads, distances] statistic
  std::int64_t first_head = 0;
  Tensor dtable;  // [buckets, all heads]
};

}  // namespace lockstep::ops
