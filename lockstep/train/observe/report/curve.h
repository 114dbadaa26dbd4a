// Curves over the steps of a run, reduced to few points.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::train {

struct CurvePoint {
  double step = 0;
  double value = 0;  // NaN: the curve has a gap here
};

// Accepts any number of points, in the order of steps, in constant memory.
//
// Neighbouring points share a *bucket*, which remembers the lowest and the highest of them, so that
// a spike of one step among a million still shows. Whenever there are too many buckets, neighbours
// become one; so all of them but the last hold equally many points.
class CurveBuilder {
 public:
  static constexpr std::size_t kMostPoints = 1000;  // of points()

  void add(double step, double value);
  // Infinite or NaN values leave a gap only if no point in their bucket has a value.
  std::vector<CurvePoint> points() const;

 private:
  struct Bucket {
    CurvePoint low, high;  // NaN while nothing has a value
    std::size_t points = 0;
  };
  static void merge(Bucket& into, const Bucket& from);
  void halve();

  std::vector<Bucket> buckets_;
  std::size_t points_per_bucket_ = 1;
};

// A mean in which earlier points count less and less: half as much every `half_life` of them. Steps
// are averaged as values are, so that the smoothed curve does not lag behind.
class FadingMean {
 public:
  explicit FadingMean(double half_life);
  // The mean so far, this point included; a value that is infinite or NaN is passed over.
  CurvePoint add(double step, double value);

 private:
  double fading_;
  CurvePoint sum_;
  double weight_ = 0;
};

}  // namespace lockstep::train
