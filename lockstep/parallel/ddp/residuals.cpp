// What DDP has for a checkpoint.
#include "lockstep/parallel/compression/shards.h"
#include "lockstep/parallel/ddp/ddp.h"

namespace lockstep::parallel {

std::vector<Residual> Ddp::residuals() {
  if (loss_scale_ != 1) {
    for (CompressedAllReduce& one : compressed_) {
      one.scale_residual(static_cast<float>(1 / loss_scale_));
    }
    loss_scale_ = 1;
  }
  std::vector<Residual> parts;
  const auto own = static_cast<std::size_t>(worker());
  for (std::size_t i = 0; i < compressed_.size(); ++i) {
    const CompressedAllReduce& one = compressed_[i];
    if (one.residual().empty()) continue;
    const nn::FlatRange range = buckets_[i].range;
    const BucketShards shards{range.elements, static_cast<std::size_t>(workers())};
    parts.push_back({.range = range, .values = one.residual(), .device = options_.device});
    if (!one.velocity().empty()) {
      parts.push_back({.range = range,
                       .values = one.velocity(),
                       .kind = Residual::Kind::kVelocity,
                       .device = options_.device});
    }
    if (one.residual_of_sums().empty()) continue;
    parts.push_back({.range = {range.first + shards.begin(own), shards.size(own)},
                     .values = one.residual_of_sums().first(shards.size(own)),
                     .kind = Residual::Kind::kSums,
                     .device = options_.device});
  }
  return parts;
}

}  // namespace lockstep::parallel
