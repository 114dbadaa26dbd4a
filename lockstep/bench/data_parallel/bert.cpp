#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text/text.h"
#include "lockstep/bench/data_parallel/cases.h"

namespace lockstep::bench::data_parallel {
namespace {

constexpr int kBertSteps = 400;
constexpr int kBertRanks = 4;
constexpr std::size_t kFewest = 10;  // of the first, and of the last steps

double mean_loss(std::span<const TrainedStep> steps) {
  double sum = 0;
  for (const TrainedStep& step : steps) sum += step.loss;
  return sum / static_cast<double>(steps.size());
}

}  // namespace

CaseReport run_bert(Session& session) {
  const int steps = session.steps(kBertSteps);
  CaseReport report{.name = "bert",
                    .what = fmt::format(
                        "{} steps of BERT's masked tokens, gradients all-reduced by a ring", steps),
                    .columns = {{"first_loss", "first loss", Unit::kLoss},
                                {"last_loss", "last loss", Unit::kLoss},
                                {"fall", "falls by", Unit::kLoss}}};
  const auto settings = [&] {
    return Session::with(session.recipe(steps), {"model.family=bert", "parallel.algorithm=ring"});
  };
  for (const int ranks : {1, kBertRanks}) {
    if (!session.has_text()) break;  // tokens without a tokenizer have none to hide others behind
    Row row;
    row.setting = counted(static_cast<std::size_t>(ranks), "rank");
    const Trained trained = session.run(report.name, row.setting, {settings(), ranks});
    row.problem = trained.problem;
    if (row.problem.empty()) {
      const std::span<const TrainedStep> all = trained.steps;
      const std::size_t some = std::min(kFewest, all.size());
      const double first = mean_loss(all.first(some));
      const double last = mean_loss(all.last(some));
      row.numbers = {{"first_loss", first}, {"last_loss", last}, {"fall", first - last}};
    }
    report.rows.push_back(std::move(row));
  }
  const char* why_not = session.has_text() ? "a run failed" : "needs --text FILE";
  const auto ratio = [&](const char* key) {
    return report.ratio(counted(kBertRanks, "rank"), counted(1, "rank"), key);
  };
  report.bars.push_back({.claim = "fall of the loss on 4 ranks / on 1",
                         .side = Bar::Side::kAtLeast,
                         .bound = 0.98,
                         .value = ratio("fall"),
                         .why_not = why_not});
  report.bars.push_back({.claim = "last loss on 4 ranks / on 1",
                         .side = Bar::Side::kAtMost,
                         .bound = 1.02,
                         .value = ratio("last_loss"),
                         .why_not = why_not});
  return report;
}

}  // namespace lockstep::bench::data_parallel
