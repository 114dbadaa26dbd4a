// In which slices the sequences of a run go through its pipeline.
#include "lockstep/plan/pipeline/token_slices.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {
namespace {

// Lengths are multiples of a divisor of the sequence, so that there are at most this many.
constexpr int kMostUnits = 32;

// What a slice costs besides its tokens, in tokens of matrix products: its products read all
// weights, and are slower the fewer rows they have.
constexpr double kTokensPerSlice = 32;

int tokens_of_sequence(const TrainOptions& options) {
  const int given = solved(options.batch).sequence;
  return given > 0 ? given : static_cast<int>(shape_of(options).positions);
}

// FLOPs of the layers. A token attends to all tokens before it.
plan::SliceTime slice_time_of(const TrainOptions& options) {
  const plan::TokenFlops flops = plan::count_flops(shape_of(options), 1);
  return [flops](int length, int context) {
    return flops.layers * (length + kTokensPerSlice) +
           flops.attention * length * (context + length / 2.0);
  };
}

int granularity_of(int tokens) {
  int units = std::min(tokens, kMostUnits);
  while (tokens % units != 0) --units;
  return tokens / units;
}

}  // namespace

bool can_slice_tokens(const TrainOptions& options) {
  const plan::FamilyParts* parts = parts_of(options);
  return parts != nullptr && parts->causal && !parts->experts;
}

std::vector<std::int64_t> token_slices_of(const TrainOptions& options) {
  if (!parallel::slices_tokens(options.parallel) || !can_slice_tokens(options)) return {};
  const int tokens = tokens_of_sequence(options);
  const int stages = options.parallel.pipeline;
  const int slices = options.parallel.pipeline_slices;
  if (slices > tokens) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.pipeline_slices = {}, but a sequence has {} tokens; take {} or less, or 0",
         slices, tokens, tokens);
  }
  const plan::SliceTime time = slice_time_of(options);
  const std::vector<int> lengths =
      slices > 0 ? plan::uniform_slices(tokens, slices, stages, time).lengths
                 : plan::best_slices(tokens, stages, time, granularity_of(tokens)).lengths;
  if (lengths.size() == 1) return {};
  return {lengths.begin(), lengths.end()};
}

plan::StepTimes step_times_of(const TrainOptions& options) {
  plan::StepTimes times;
  const std::vector<std::int64_t> slices = token_slices_of(options);
  if (slices.empty()) return times;
  const plan::SliceTime time = slice_time_of(options);
  int context = 0;
  for (const std::int64_t length : slices) {
    times.slices.push_back(time(static_cast<int>(length), context));
    context += static_cast<int>(length);
  }
  const double all = std::accumulate(times.slices.begin(), times.slices.end(), 0.0);
  for (double& part : times.slices) part /= all;
  return times;
}

std::int64_t most_backwards(const TrainOptions& options) {
  const auto slices = static_cast<std::int64_t>(token_slices_of(options).size());
  return solved(options.batch).accumulation * std::max(slices, std::int64_t{1});
}

}  // namespace lockstep::train
