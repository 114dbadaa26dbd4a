#include <fmt/format.h>

#include <algorithm>

#include "lockstep/bench/data_parallel/cases.h"

namespace lockstep::bench::data_parallel {
namespace {

constexpr double kSizes[] = {1, 2, 5, 10, 25, 50, 100, 400};  // MB

std::string bucket_setting(double megabytes) { return fmt::format("{:g} MB", megabytes); }

}  // namespace

CaseReport run_buckets(Session& session) {
  CaseReport report{.name = "buckets", .columns = timed_columns()};
  const double usual = parallel::ParallelOptions{}.bucket_mb;
  std::vector<double> sizes(std::begin(kSizes), std::end(kSizes));
  if (std::find(sizes.begin(), sizes.end(), usual) == sizes.end()) sizes.push_back(usual);
  std::sort(sizes.begin(), sizes.end());
  Bar bar{.claim = fmt::format("step with buckets of {} (the default) / the best",
                               bucket_setting(usual)),
          .side = Bar::Side::kAtMost,
          .bound = 1.05,
          .value = std::nullopt,
          .why_not = "a run failed"};
  const Link& link = session.link();
  if (!link.problem.empty()) {
    report.what = "not run";
    report.rows.push_back({.setting = "the link", .problem = link.problem});
    report.bars = {bar};
    return report;
  }
  report.what = fmt::format("2 ranks on links of {} ({})", link.emulate, link.how);
  std::vector<Turn> turns;
  for (const double size : sizes) {
    turns.push_back(session.turn(
        report.name, bucket_setting(size),
        {Session::with(session.linked_model(), {"comm.emulate=" + link.emulate,
                                                fmt::format("parallel.bucket_mb={:g}", size)}),
         2}));
  }
  session.by_turns(turns);
  std::vector<std::pair<std::string, double>> points;
  std::size_t marked = sizes.size();
  for (std::size_t i = 0; i < turns.size(); ++i) {
    report.rows.push_back(row_of(turns[i]));
    const auto step = report.rows.back().number("step_s");
    if (!step) continue;
    if (sizes[i] == usual) marked = points.size();
    points.emplace_back(fmt::format("{:g}", sizes[i]), *step);
  }
  report.drawing = draw_curve(points, marked, "MB");
  if (marked < points.size()) {
    double best = points.front().second;
    for (const auto& [label, step] : points) best = std::min(best, step);
    bar.value = points[marked].second / best;
  }
  report.bars = {bar};
  return report;
}

}  // namespace lockstep::bench::data_parallel
