#include "lockstep/train/observe/report/curve.h"

#include <cmath>
#include <limits>
#include <utility>

namespace lockstep::train {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();
// Beyond it ranges and sums would overflow; nothing that is measured is.
constexpr double kLargestValue = 1e300;

bool has_value(double value) { return std::abs(value) <= kLargestValue; }

}  // namespace

void CurveBuilder::merge(Bucket& into, const Bucket& from) {
  if (!(into.low.value <= from.low.value) && has_value(from.low.value)) into.low = from.low;
  if (!(into.high.value >= from.high.value) && has_value(from.high.value)) into.high = from.high;
  into.points += from.points;
}

void CurveBuilder::halve() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < buckets_.size(); i += 2) {
    Bucket bucket = buckets_[i];
    if (i + 1 < buckets_.size()) merge(bucket, buckets_[i + 1]);
    buckets_[kept++] = bucket;
  }
  buckets_.resize(kept);
  points_per_bucket_ *= 2;
}

void CurveBuilder::add(double step, double value) {
  const CurvePoint point{step, has_value(value) ? value : kNoValue};
  const Bucket bucket{point, point, 1};
  while (true) {
    if (!buckets_.empty() && buckets_.back().points < points_per_bucket_) {
      return merge(buckets_.back(), bucket);
    }
    // A bucket of one point is drawn as one, a bucket of more as two.
    const std::size_t most = points_per_bucket_ == 1 ? kMostPoints : kMostPoints / 2;
    if (buckets_.size() < most) return buckets_.push_back(bucket);
    halve();
  }
}

std::vector<CurvePoint> CurveBuilder::points() const {
  std::vector<CurvePoint> points;
  for (const Bucket& bucket : buckets_) {
    CurvePoint first = bucket.low;
    CurvePoint second = bucket.high;
    if (first.step > second.step) std::swap(first, second);
    points.push_back(first);
    if (second.step != first.step) points.push_back(second);
  }
  return points;
}

FadingMean::FadingMean(double half_life) : fading_(std::exp2(-1 / half_life)) {}

CurvePoint FadingMean::add(double step, double value) {
  if (has_value(value)) {
    sum_.step = sum_.step * fading_ + step;
    sum_.value = sum_.value * fading_ + value;
    weight_ = weight_ * fading_ + 1;
  }
  return {sum_.step / weight_, sum_.value / weight_};
}

}  // namespace lockstep::train
