#include "lockstep/parallel/strategy/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/communication/gathered.h"

namespace lockstep::parallel {

StepStart agree_to_begin(Communicator& world, const StepStart& mine, StepWaits& waits) {
  const std::array<std::int64_t, 3> numbers{mine.targets, mine.tokens, mine.stops ? 1 : 0};
  const std::vector<std::int64_t> all =
      waits.begin_with([&] { return gathered<std::int64_t>(world, numbers); });
  StepStart sum{.loss_scale = mine.loss_scale};
  for (std::size_t i = 0; i < all.size(); i += numbers.size()) {
    sum.targets += all[i];
    sum.tokens += all[i + 1];
    sum.stops = sum.stops || all[i + 2] != 0;
  }
  return sum;
}

double sum_of_losses(Communicator& world, std::span<const double> mine,
                     std::int64_t most_micro_batches) {
  std::vector<double> numbers{static_cast<double>(mine.size())};
  numbers.insert(numbers.end(), mine.begin(), mine.end());
  numbers.resize(1 + static_cast<std::size_t>(most_micro_batches));
  const std::vector<double> all = gathered<double>(world, numbers);
  double sum = 0;
  for (std::size_t i = 0; i < all.size(); i += numbers.size()) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(all[i]); ++k) sum += all[i + 1 + k];
  }
  return sum;
}

StepSummary agree_to_end(Communicator& world, const StepEnd& mine, const StepTraffic& traffic,
                         const StepWaits& waits, std::int64_t most_micro_batches) {
  constexpr std::size_t kNumbers = 7;
  StepCost cost = mine.cost;
  cost.communication_seconds = traffic.cost.seconds;
  cost.bytes_sent = traffic.cost.bytes;
  cost = with_axes(waits.cost_of(cost), mine.axes);
  std::vector<double> numbers{static_cast<double>(mine.losses.size()),
                              cost.compute_seconds,
                              cost.communication_seconds,
                              cost.exposed_seconds,
                              static_cast<double>(cost.bytes_sent),
                              static_cast<double>(traffic.bytes_across),
                              cost.elapsed_seconds};
  numbers.insert(numbers.end(), mine.losses.begin(), mine.losses.end());
  numbers.resize(kNumbers + static_cast<std::size_t>(most_micro_batches));
  const std::vector<double> all = gathered<double>(world, numbers);
  StepSummary summary;
  for (std::size_t i = 0; i < all.size(); i += numbers.size()) {
    const double* of = all.data() + i;
    summary.costs.push_back({.compute_seconds = of[1],
                             .communication_seconds = of[2],
                             .exposed_seconds = of[3],
                             .bytes_sent = static_cast<std::uint64_t>(of[4]),
                             .bytes_across = static_cast<std::uint64_t>(of[5]),
                             .elapsed_seconds = of[6]});
    // One after the other, in the order of the micro-batches, whichever worker computed them.
    for (std::size_t k = 0; k < static_cast<std::size_t>(of[0]); ++k) {
      summary.loss += of[kNumbers + k];
    }
  }
  waits.add_agreement_to_end(summary.costs);
  return summary;
}

namespace {

[[noreturn]] void fail_unequal(std::string_view what, const std::vector<int>& others, int first) {
  throw Error(
      ErrorCode::kMismatch,
      fmt::format("the {} of rank{} {} differ from those of rank {}: its memory or a kernel "
                  "is faulty",
                  what, others.size() > 1 ? "s" : "", fmt::join(others, ", "), first),
      others);
}

}  // namespace

std::string agree_on_hash(Communicator& world, const std::string& mine) {
  const std::vector<std::string> all = gathered_texts(world, mine);
  std::vector<int> others;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i] != all[0]) others.push_back(static_cast<int>(i));
  }
  if (!others.empty()) fail_unequal("parameters", others, 0);
  return mine;
}

std::string agree_on_hashes(Communicator& world, const std::string& common,
                            const std::string& experts, const nn::Sharding& sharding) {
  agree_on_hash(world, common);
  if (sharding.experts == 1) return common;
  const std::vector<std::string> all = gathered_texts(world, experts);
  for (int first = 0; first < sharding.experts; ++first) {
    std::vector<int> others;
    const int one = first * sharding.context;
    for (int i = 0; i < static_cast<int>(all.size()); ++i) {
      const bool same = sharding.expert_rank(i) == first;
      const auto of = [&](int worker) { return all[static_cast<std::size_t>(worker)]; };
      if (same && of(i) != of(one)) others.push_back(i);
    }
    if (!others.empty()) fail_unequal("experts", others, one);
  }
  return common;
}

}  // namespace lockstep::parallel
