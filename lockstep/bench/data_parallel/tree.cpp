#include <fmt/format.h>

#include <bit>
#include <cstdint>

#include "lockstep/base/text/text.h"
#include "lockstep/bench/data_parallel/cases.h"
#include "lockstep/io/hashed_file.h"

namespace lockstep::bench::data_parallel {
namespace {

constexpr int kRankCounts[] = {1, 2, 4, 8};
constexpr int kSteps = 20;
constexpr const char* kStates = "states.safetensors";

// The states of the run's last checkpoint.
std::string final_states(const std::filesystem::path& run, int step) {
  const auto folder = run / "checkpoints" / fmt::format("step-{:08}", step);
  return io::hash_of_file(folder / kStates).hash;
}

struct TreeRun {
  Trained trained;
  std::string states;
};

bool same_losses(const Trained& one, const Trained& other) {
  if (one.steps.size() != other.steps.size()) return false;
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    if (std::bit_cast<std::uint64_t>(one.steps[i].loss) !=
        std::bit_cast<std::uint64_t>(other.steps[i].loss)) {
      return false;
    }
  }
  return true;
}

}  // namespace

CaseReport run_tree(Session& session) {
  const int steps = session.steps(kSteps);
  CaseReport report{.name = "tree",
                    .what = fmt::format("{} steps with parallel.reduction = tree", steps),
                    .columns = {{"loss", "last loss", Unit::kLoss}}};
  const auto settings = Session::with(
      session.recipe(steps),
      {"parallel.reduction=tree", "train.global_batch_size=8", "train.micro_batch_size=1"});
  std::vector<TreeRun> runs;
  int other_losses = 0;
  int other_states = 0;
  for (const int ranks : kRankCounts) {
    Row row;
    row.setting = counted(static_cast<std::size_t>(ranks), "rank");
    TreeRun run;
    run.trained = session.run(
        report.name, row.setting, {settings, ranks},
        [&](const std::filesystem::path& folder) { run.states = final_states(folder, steps); });
    row.problem = run.trained.problem;
    if (row.problem.empty()) {
      row.numbers.emplace_back("loss", run.trained.steps.back().loss);
      row.words.emplace_back("states", run.states);
      runs.push_back(std::move(run));
      if (!same_losses(runs.back().trained, runs.front().trained)) ++other_losses;
      if (runs.back().states != runs.front().states) ++other_states;
    }
    report.rows.push_back(std::move(row));
  }
  const bool whole = !report.failed();
  const auto bar = [&](const char* claim, int others) {
    report.bars.push_back({.claim = claim,
                           .side = Bar::Side::kAtMost,
                           .bound = 0,
                           .value = whole ? std::optional<double>(others) : std::nullopt,
                           .why_not = "a run failed"});
  };
  bar("runs whose losses differ in a bit from those of 1 rank", other_losses);
  bar("runs whose final states differ in a bit from those of 1 rank", other_states);
  return report;
}

}  // namespace lockstep::bench::data_parallel
