#include "lockstep/ops/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/ops/check.h"

namespace lockstep {
namespace ops {

double sum_of_runs(std::span<const double> runs) {
  double sum = 0;
  for (std::size_t first = 0; first < runs.size(); first += kSpanRuns) {
    double span = 0;
    for (const double run : runs.subspan(first, std::min(kSpanRuns, runs.size() - first))) {
      span += run;
    }
    sum += span;
  }
  return sum;
}

std::vector<std::int64_t> adam_table(std::span<const AdamSegment> segments) {
  std::vector<std::int64_t> table;
  std::int64_t end = 0;
  std::int64_t tiles = 0;
  for (const AdamSegment& segment : segments) {
    if (segment.first < end || segment.elements < 0) {
      fail(ErrorCode::kInvalidArgument,
           "a segment of {} elements from {} on follows one that ends at {}; segments ascend and "
           "do not overlap",
           segment.elements, segment.first, end);
    }
    table.insert(table.end(), {segment.first, segment.elements, tiles, segment.decays ? 1 : 0});
    end = segment.first + segment.elements;
    if (segment.elements > 0) {
      tiles += (segment.first % kAdamPack + segment.elements + kAdamTile - 1) / kAdamTile;
    }
  }
  table.insert(table.end(), {end, 0, tiles, 0});
  return table;
}

}  // namespace ops

namespace {

Tensor part_of(const Tensor& flat, std::int64_t first, std::int64_t elements) {
  if (!ops::is_given(flat)) return {};
  return flat.reshaped({static_cast<std::int64_t>(flat.elements())}).slice(first, elements);
}

}  // namespace

void Ops::run(const ops::AdamSegments& call) {
  ops::check(call);
  const auto table = call.table.as<const std::int64_t>();
  for (std::size_t row = 0; row + 4 < table.size(); row += 4) {
    const std::int64_t first = table[row];
    const std::int64_t elements = table[row + 1];
    ops::Adam adam = call.adam;
    adam.master = part_of(adam.master, first, elements);
    adam.gradient = part_of(adam.gradient, first, elements);
    adam.first_moment = part_of(adam.first_moment, first, elements);
    adam.second_moment = part_of(adam.second_moment, first, elements);
    adam.parameter = part_of(adam.parameter, first, elements);
    if (table[row + 3] == 0) adam.decay = 0;
    run(adam);
  }
}

void Ops::run(const ops::ChunkedSumOfSquares& call) {
  ops::check(call);
  const auto elements = static_cast<std::int64_t>(call.x.elements());
  for (std::int64_t chunk = 0; chunk * call.chunk_elements < elements; ++chunk) {
    const std::int64_t first = chunk * call.chunk_elements;
    run(ops::SumOfSquares{
        .x = part_of(call.x, first, std::min(call.chunk_elements, elements - first)),
        .result = call.results.slice(chunk, 1)});
  }
}

void Ops::run(const ops::ClipScale& call) {
  ops::check(call);
  double sum = 0;
  for (const double one : call.squares.as<const double>()) sum += one;
  const double loss_scale = call.loss_scale;
  const double norm = std::sqrt(sum) / loss_scale;
  const double clip = call.limit > 0 && norm > call.limit ? call.limit / norm : 1;
  call.norm.as<double>()[0] = norm;
  call.scale.as<double>()[0] =
      std::isfinite(norm) ? clip / loss_scale : std::numeric_limits<double>::quiet_NaN();
}

std::byte* Ops::scratch_memory(std::size_t needed) const {
  if (scratch_.bytes() < needed) {
    fail(ErrorCode::kInvalidArgument,
         "an operation needs {} bytes of scratch memory and was given {}; use_scratch() takes them",
         needed, scratch_.bytes());
  }
  return scratch_.data();
}

void Ops::begin_capture() { fail(ErrorCode::kUnsupported, "{} cannot capture operations", name()); }

std::unique_ptr<CapturedStep> Ops::end_capture() {
  fail(ErrorCode::kUnsupported, "{} cannot capture operations", name());
}

std::unique_ptr<CapturedStep> capture(Ops& ops, const std::function<void()>& work) {
  ops.begin_capture();
  try {
    work();
  } catch (...) {
    try {
      ops.end_capture();
    } catch (...) {  // what was thrown first says more
    }
    throw;
  }
  return ops.end_capture();
}

}  // namespace lockstep
