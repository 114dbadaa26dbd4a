#include "lockstep/ops/cuda/attention/relative_bias.h"

#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace relative_bias {
namespace {

BucketRanges ranges_of(const ops::RelativeBuckets& buckets, const char* operation) {
  if (buckets.count > ops::kMostBuckets) {
    fail(ErrorCode::kUnsupported, "{}: a GPU takes at most {} buckets, not {}; use the CPU",
         operation, ops::kMostBuckets, buckets.count);
  }
  if (buckets.distances() > std::numeric_limits<int>::max()) {
    fail(ErrorCode::kUnsupported, "{}: a GPU does not take as many distances as {}; use the CPU",
         operation, buckets.distances());
  }
  BucketRanges ranges{};
  for (std::int64_t i = 0; i < buckets.distances(); ++i) {
    const std::int64_t bucket = ops::bucket_of(buckets, i - buckets.max_distance);
    const auto at = static_cast<int>(i);
    if (ranges.end[bucket] == 0) {
      ranges.begin[bucket] = at;
    } else if (ranges.end[bucket] != at) {
      fail(ErrorCode::kUnsupported, "{}: the distances of bucket {} do not follow each other",
           operation, bucket);
    }
    ranges.end[bucket] = at + 1;
  }
  return ranges;
}

}  // namespace
}  // namespace relative_bias

void run(const Context& context, const ops::RelativeBias& call) {
  relative_bias::launch_bias(context, call,
                             relative_bias::ranges_of(call.buckets, "relative_bias"));
}

void run(const Context& context, const ops::RelativeBiasBackward& call) {
  relative_bias::launch_dtable(context, call,
                               relative_bias::ranges_of(call.buckets, "relative_bias_backward"));
}

}  // namespace lockstep::cuda
