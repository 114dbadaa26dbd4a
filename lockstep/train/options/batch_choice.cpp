// How the sequences of a step become micro-batches of workers.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {
namespace {

// The micro-batch with which no worker has more sequences than it must; the largest such one.
int best_micro_batch(int sequences, int workers) {
  const auto most = [&](int micro) {
    return (std::int64_t{sequences / micro} + workers - 1) / workers * micro;
  };
  int best = 1;
  for (const int micro : divisors_of(sequences)) {
    if (micro > sequences / workers) continue;
    if (most(micro) < most(best) || (most(micro) == most(best) && micro > best)) best = micro;
  }
  return best;
}

}  // namespace

std::vector<int> divisors_of(int sequences) {
  std::vector<int> divisors;
  for (int divisor = 1; divisor <= sequences / divisor; ++divisor) {
    if (sequences % divisor != 0) continue;
    divisors.push_back(divisor);
    if (divisor != sequences / divisor) divisors.push_back(sequences / divisor);
  }
  std::ranges::sort(divisors, std::greater());
  return divisors;
}

BatchChoice solved(BatchChoice batch) {
  const auto refuse = [given = batch](std::string_view what) {
    std::vector<std::string> set;
    const auto add = [&](std::string_view key, int value) {
      if (value > 0) set.push_back(fmt::format("{} = {}", key, value));
    };
    add("train.global_batch_size", given.sequences);
    add("train.micro_batch_size", given.micro);
    add("train.gradient_accumulation_steps", given.accumulation);
    fail(ErrorCode::kInvalidArgument, "{} {}{}: {}", fmt::join(set, " and "),
         set.size() == 1 ? "does not fit" : "do not fit together",
         given.workers > 1 ? fmt::format(" on {} ranks", given.workers) : "", what);
  };
  const int workers = batch.readers();
  if (batch.sequences > 0 && batch.sequences < workers) {
    refuse(
        fmt::format("some ranks would have no work; start {} or fewer, or set "
                    "train.global_batch_size = {} or more",
                    batch.sequences, workers));
  }
  if (batch.micro == 0 && batch.sequences > 0) {
    if (batch.accumulation > 0) {
      const std::int64_t parts = std::int64_t{batch.accumulation} * workers;
      if (batch.sequences % parts != 0) {
        refuse(
            fmt::format("the sequences cannot be split evenly; train.global_batch_size must be a "
                        "multiple of {}",
                        parts));
      }
      batch.micro = static_cast<int>(batch.sequences / parts);
    } else {
      batch.micro = best_micro_batch(batch.sequences, workers);
    }
  }
  if (batch.micro == 0) batch.micro = 1;
  if (batch.sequences % batch.micro != 0) {
    refuse(
        "the micro-batch does not divide the batch; set one that does, or another "
        "train.global_batch_size");
  }
  const int micro_batches = batch.sequences / batch.micro;
  if (batch.sequences > 0 && micro_batches < workers) {
    refuse("some ranks would have no micro-batch; choose a smaller train.micro_batch_size");
  }
  if (batch.accumulation == 0)
    batch.accumulation = std::max((micro_batches + workers - 1) / workers, 1);
  const std::int64_t product = std::int64_t{batch.micro} * batch.accumulation * workers;
  if (product > std::numeric_limits<int>::max()) {
    refuse(fmt::format("a step would have {} sequences, which is too many", product));
  }
  if (batch.sequences == 0) batch.sequences = static_cast<int>(product);
  if (batch.sequences > product ||
      batch.sequences <= product - std::int64_t{batch.micro} * workers) {
    refuse(
        fmt::format("with this micro-batch and accumulation a step has {}{} sequences; set "
                    "train.global_batch_size to match, or leave one of the three out",
                    workers > 1 ? "up to " : "", product));
  }
  return batch;
}

parallel::StepPlan step_plan(const BatchChoice& batch) {
  const BatchChoice all = solved(batch);
  return {.sequences = all.sequences, .micro = all.micro, .context = all.context};
}

}  // namespace lockstep::train
