#include "lockstep/ops/relative_bias.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "lockstep/ops/check.h"
#include "lockstep/ops/element.h"
#include "lockstep/ops/ops.h"

namespace lockstep {
namespace ops {

bool are_valid(const RelativeBuckets& buckets) {
  return buckets.count >= 4 && buckets.count % 2 == 0 && buckets.max_distance > buckets.count / 2;
}

std::int64_t bucket_of(const RelativeBuckets& buckets, std::int64_t distance) {
  const std::int64_t count = buckets.bidirectional ? buckets.count / 2 : buckets.count;
  const std::int64_t first = buckets.bidirectional && distance > 0 ? count : 0;
  const std::int64_t away =
      buckets.bidirectional ? std::abs(distance) : std::max<std::int64_t>(0, -distance);
  const std::int64_t exact = count / 2;
  if (away < exact) return first + away;
  const auto turns = static_cast<float>(
      std::log(static_cast<double>(buckets.max_distance) / static_cast<double>(exact)));
  const float share = std::log(static_cast<float>(away) / static_cast<float>(exact)) / turns;
  const auto more = static_cast<std::int64_t>(share * static_cast<float>(count - exact));
  return first + std::min(exact + more, count - 1);
}

namespace {

// Calls f(distance index, bucket) for all distances.
template <class F>
void for_distances(const RelativeBuckets& buckets, const F& f) {
  for (std::int64_t i = 0; i < buckets.distances(); ++i) {
    f(static_cast<std::size_t>(i),
      static_cast<std::size_t>(bucket_of(buckets, i - buckets.max_distance)));
  }
}

}  // namespace
}  // namespace ops

namespace {

std::size_t as_size(std::int64_t x) { return static_cast<std::size_t>(x); }

}  // namespace

void Ops::run(const ops::RelativeBias& call) {
  ops::check(call, {.f64 = true});
  const std::size_t heads = as_size(call.bias.shape()[0]);
  const std::size_t distances = as_size(call.bias.shape()[1]);
  const std::size_t columns = as_size(call.table.shape()[1]);
  const std::size_t first = as_size(call.first_head);
  ops::with_float_type(call.table.dtype(), [&]<class T>(T) {
    ops::with_float_type(call.bias.dtype(), [&]<class S>(S) {
      const auto table = call.table.as<const T>();
      const auto bias = call.bias.as<S>();
      ops::for_distances(call.buckets, [&](std::size_t distance, std::size_t bucket) {
        for (std::size_t head = 0; head < heads; ++head) {
          bias[head * distances + distance] =
              ops::rounded<S>(ops::to_double(table[bucket * columns + first + head]));
        }
      });
    });
  });
}

void Ops::run(const ops::RelativeBiasBackward& call) {
  ops::check(call, {.f64 = true});
  const std::size_t heads = as_size(call.dbias.shape()[0]);
  const std::size_t distances = as_size(call.dbias.shape()[1]);
  const std::size_t columns = as_size(call.dtable.shape()[1]);
  const std::size_t first = as_size(call.first_head);
  std::vector<double> sums(as_size(call.buckets.count) * heads);
  ops::with_float_type(call.dbias.dtype(), [&]<class S>(S) {
    const auto dbias = call.dbias.as<const S>();
    ops::for_distances(call.buckets, [&](std::size_t distance, std::size_t bucket) {
      for (std::size_t head = 0; head < heads; ++head) {
        sums[bucket * heads + head] += ops::to_double(dbias[head * distances + distance]);
      }
    });
  });
  ops::with_float_type(call.dtable.dtype(), [&]<class T>(T) {
    const auto dtable = call.dtable.as<T>();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      T& element = dtable[i / heads * columns + first + i % heads];
      element = ops::rounded<T>(ops::to_double(element) + sums[i]);
    }
  });
}

}  // namespace lockstep
