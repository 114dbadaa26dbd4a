// The link on which communication and backward take equally long.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/net/link_emulation.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/data_parallel/session.h"
#include "lockstep/bench/statistics.h"

namespace lockstep::bench::data_parallel {
namespace {

constexpr int kRanks = 2;
constexpr std::chrono::microseconds kDelay{100};
constexpr double kLeastRate = 1000;        // bytes per second
constexpr double kBackwardsPerUpdate = 4;  // at least; of their times in a step
constexpr std::size_t kMostSequences = 64;

// To four digits, which is more than the measuring is worth.
double rounded(double rate) {
  const double unit = std::pow(10.0, std::floor(std::log10(rate)) - 3);
  return std::round(rate / unit) * unit;
}

}  // namespace

// Without emulation, so that nothing is between backward and its clock.
Session::LinkedStep Session::time_linked_step() {
  LinkedStep step;
  // Medians, as of the steps that it is compared with: the quickest would make a link on which
  // communication is shorter than backward of most steps, the more so the less quiet a machine is.
  const auto median = [](std::vector<double> seconds) {
    seconds.erase(seconds.begin(),
                  seconds.begin() + static_cast<std::ptrdiff_t>(std::min(
                                        kFirstSteps, seconds.empty() ? 0 : seconds.size() - 1)));
    std::sort(seconds.begin(), seconds.end());
    return seconds.empty() ? 0 : quantile(seconds, 0.5);
  };
  const auto look = [&](const std::filesystem::path& folder) {
    try {
      step.backward = median(span_seconds(folder, "backward"));
      step.update = median(span_seconds(folder, "update"));
    } catch (const Error& error) {
      step.problem = error.what();
    }
  };
  const Trained trained = run(
      "link", fmt::format("how long backward of {} takes", counted(linked_sequences(), "sequence")),
      {with(linked_model(), {"train.trace=true"}), kRanks}, look);
  if (!trained.problem.empty()) step.problem = trained.problem;
  if (step.problem.empty() && step.backward == 0) {
    step.problem = "the trace of the run has no backward";
  }
  const auto& costs = trained.steps.empty() ? std::nullopt : trained.steps.back().ranks;
  if (step.problem.empty() && (!costs || costs->bytes_sent == 0)) {
    step.problem = "the metrics of the run have no bytes_sent";
  }
  if (!step.problem.empty()) return step;
  // In an all-reduce of two ranks every NIC sends, and receives, half of what both send.
  step.bytes = static_cast<double>(costs->bytes_sent) / kRanks;
  return step;
}

Link Session::find_link() {
  if (!bench_.link.empty()) {
    return {.emulate = to_text(parse_link_emulation(bench_.link)), .how = "set by --link"};
  }
  LinkedStep step = time_linked_step();
  // The time of an update does not depend on the number of tokens. Where it is much of a step there
  // is little to overlap, so the step gets more sequences.
  if (step.problem.empty() && bench_.batch == 0) {
    const double short_of = kBackwardsPerUpdate * step.update / step.backward;
    while (linked_growth_ < short_of && linked_sequences() < kMostSequences) linked_growth_ *= 2;
    if (linked_growth_ > 1) step = time_linked_step();
  }
  if (!step.problem.empty()) return {.problem = "no link was found: " + step.problem};
  const LinkEmulation link{
      .bytes_per_second = rounded(std::max(step.bytes / step.backward, kLeastRate)),
      .delay = kDelay};
  return {.emulate = to_text(link),
          .how = fmt::format("{} in the {} of backward of {} x {} tokens", format_bytes(step.bytes),
                             format_seconds(step.backward), linked_sequences(),
                             options_of(linked_model()).train.batch.sequence)};
}

const Link& Session::link() {
  if (!link_) link_ = find_link();
  return *link_;
}

}  // namespace lockstep::bench::data_parallel
