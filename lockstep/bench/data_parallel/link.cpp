// The link on which communication and backward take equally long.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/link_emulation.h"
#include "lockstep/base/units.h"
#include "lockstep/bench/data_parallel/session.h"

namespace lockstep::bench::data_parallel {
namespace {

constexpr int kRanks = 2;
constexpr std::chrono::microseconds kDelay{100};
constexpr double kLeastRate = 1000;  // bytes per second

// To four digits, which is more than the measuring is worth.
double rounded(double rate) {
  const double unit = std::pow(10.0, std::floor(std::log10(rate)) - 3);
  return std::round(rate / unit) * unit;
}

}  // namespace

// Without emulation, so that nothing is between backward and its clock. Of an all-reduce among two
// every card sends, and receives, half of what both send.
Link Session::find_link() {
  if (!bench_.link.empty()) {
    return {.emulate = to_text(parse_link_emulation(bench_.link)), .how = "as told"};
  }
  std::vector<double> backward;
  std::string problem;
  const auto look = [&](const std::filesystem::path& folder) {
    try {
      backward = backward_seconds(folder);
    } catch (const Error& error) {
      problem = error.what();
    }
  };
  const Trained trained = run("link", "how long backward takes",
                              {with(linked_model(), {"train.trace=true"}), kRanks}, look);
  if (!trained.problem.empty()) problem = trained.problem;
  if (problem.empty() && backward.empty()) problem = "the trace of the run tells of no backward";
  const auto& costs = trained.steps.empty() ? std::nullopt : trained.steps.back().ranks;
  if (problem.empty() && (!costs || costs->bytes_sent == 0)) {
    problem = "the metrics of the run do not tell what was sent (bytes_sent)";
  }
  if (!problem.empty()) {
    return {.problem = "no link was found: " + problem};
  }
  // The quickest: what else the machine does only ever makes it longer.
  const double seconds = *std::min_element(backward.begin(), backward.end());
  const double bytes = static_cast<double>(costs->bytes_sent) / kRanks;
  const LinkEmulation link{.bytes_per_second = rounded(std::max(bytes / seconds, kLeastRate)),
                           .delay = kDelay};
  return {
      .emulate = to_text(link),
      .how = fmt::format("{} in the {} of backward", format_bytes(bytes), format_seconds(seconds))};
}

const Link& Session::link() {
  if (!link_) link_ = find_link();
  return *link_;
}

}  // namespace lockstep::bench::data_parallel
