#include "lockstep/parallel/ddp/buckets.h"

#include <algorithm>

namespace lockstep::parallel {
namespace {

constexpr std::size_t kAlignment = nn::FlatParameters::kAlignment;

void cut(const Segment& segment, std::size_t parts, std::vector<Bucket>& buckets) {
  const std::size_t units = (segment.range.elements + kAlignment - 1) / kAlignment;
  std::size_t at = segment.range.first;
  for (std::size_t i = 1; i <= parts; ++i) {
    const std::size_t end =
        std::min(segment.range.first + units * i / parts * kAlignment, segment.range.end());
    if (end > at) buckets.push_back({{at, end - at}, segment.ready_after, segment.experts});
    at = end;
  }
}

// Cuts off about this many elements from the front of a longer segment.
Bucket cut_off(Segment& segment, std::size_t elements) {
  const std::size_t aligned = std::max<std::size_t>(elements / kAlignment, 1) * kAlignment;
  const Bucket first{{segment.range.first, std::min(aligned, segment.range.elements)},
                     segment.ready_after,
                     segment.experts};
  segment.range = {first.range.end(), segment.range.elements - first.range.elements};
  return first;
}

}  // namespace

std::vector<Segment> segments_of(const nn::FlatParameters& flat) {
  std::vector<Segment> segments;
  for (std::size_t block = flat.blocks(); block-- > 0;) {
    if (flat.range(block).elements == 0) continue;
    segments.push_back({flat.range(block), block, flat.has_experts(block)});
  }
  return segments;
}

bool is_ready(const Segment& segment, const Progress& progress) {
  if (segment.ready_after != progress.block) return segment.ready_after > progress.block;
  return !progress.done || (segment.range.first >= progress.done->first &&
                            segment.range.end() <= progress.done->end());
}

std::vector<Bucket> plan_buckets(std::span<const Segment> segments, std::size_t element_bytes,
                                 const BucketSizes& sizes) {
  std::size_t left = 0;  // bytes that follow
  for (const Segment& segment : segments) left += segment.range.elements * element_bytes;
  std::vector<Bucket> buckets;
  bool open = false;  // the last bucket may grow
  for (const Segment& segment : segments) {
    const std::size_t bytes = segment.range.elements * element_bytes;
    left -= bytes;
    const std::size_t others = left < sizes.others ? sizes.last() : sizes.others;
    const bool is_first = buckets.empty() || (open && buckets.size() == 1);
    const std::size_t limit = is_first ? sizes.first : others;
    if (open && buckets.back().range.end() == segment.range.first &&
        buckets.back().experts == segment.experts &&
        buckets.back().range.elements * element_bytes + bytes <= limit) {
      buckets.back().range.elements += segment.range.elements;
      buckets.back().ready_after = segment.ready_after;
      continue;
    }
    const std::size_t most = buckets.empty() ? sizes.first : others;
    open = bytes <= most;
    Segment rest = segment;
    if (buckets.empty() && !open) {
      buckets.push_back(cut_off(rest, sizes.first / element_bytes));
    }
    const std::size_t bytes_of_rest = rest.range.elements * element_bytes;
    cut(rest, open ? 1 : (bytes_of_rest + others - 1) / others, buckets);
  }
  return buckets;
}

}  // namespace lockstep::parallel
