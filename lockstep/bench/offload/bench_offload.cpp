#include "lockstep/bench/offload/bench_offload.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "lockstep/bench/statistics.h"
#include "lockstep/bench/train/synthetic_batches.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::bench {
namespace {

using train::TrainOptions;

// One of the runs.
class OffloadRun {
 public:
  OffloadRun(std::string name, const TrainOptions& options)
      : name_(std::move(name)),
        ops_(make_cpu_ops(train::threads_of(options))),
        trainer_(options, *ops_),
        batches_(train::shape_of(options), trainer_.replica().setup().shape,
                 train::solved(options.batch).accumulation) {}

  nn::Replica& replica() { return trainer_.replica(); }
  void step() { steps_.push_back(trainer_.step(batches_.all())); }
  void forget() { steps_.clear(); }

  OffloadRow row() const {
    OffloadRow row{.name = name_};
    std::vector<double> seconds;
    for (const train::StepMetrics& step : steps_) {
      seconds.push_back(step.seconds);
      row.file_bytes += static_cast<double>(step.filed.bytes());
      row.waited_seconds += step.filed.waited_seconds;
    }
    std::ranges::sort(seconds);
    const auto count = static_cast<double>(steps_.size());
    row.file_bytes /= count;
    row.waited_seconds /= count;
    row.step_seconds = quantile(seconds, 0.5);
    row.tokens_per_second = static_cast<double>(steps_.front().tokens) / row.step_seconds;
    return row;
  }

 private:
  std::string name_;
  std::unique_ptr<Ops> ops_;
  train::Trainer trainer_;
  SyntheticBatches batches_;
  std::vector<train::StepMetrics> steps_;
};

}  // namespace

bool OffloadReport::is_as_predicted() const {
  return std::abs(rows[1].efficiency / formula - 1) <= kTolerance;
}

bool OffloadReport::overlap_wins() const { return rows[2].efficiency > formula; }

OffloadReport run_offload(const OffloadBench& bench) {
  TrainOptions in_file = bench.options;
  if (!in_file.offload.tiers.has_files()) in_file.offload.tiers.optimizer = Tier::kFile;
  in_file.offload.tiers.overlaps = true;
  TrainOptions one_by_one = in_file;
  one_by_one.offload.tiers.overlaps = false;
  TrainOptions on_device = bench.options;
  on_device.offload = {};
  on_device.device_limit = 0;

  std::vector<std::unique_ptr<OffloadRun>> runs;
  runs.push_back(std::make_unique<OffloadRun>("on the device", on_device));
  runs.push_back(std::make_unique<OffloadRun>("in a file, one after the other", one_by_one));
  runs.push_back(std::make_unique<OffloadRun>("in a file, overlapped", in_file));
  for (const auto& run : runs) {
    run->step();  // with what is done once
    run->forget();
  }
  for (int i = 0; i < bench.steps; ++i) {
    for (const auto& run : runs) run->step();
  }

  OffloadReport report;
  for (const auto& run : runs) report.rows.push_back(run->row());
  const double alone = report.rows[0].step_seconds;
  for (OffloadRow& row : report.rows) row.efficiency = alone / row.step_seconds;
  const nn::MemoryPlan& plan = runs[1]->replica().plan();
  report.parameters = static_cast<double>(plan.flat.count());
  report.device_bytes = static_cast<double>(plan.bytes(Tier::kDevice));
  report.whole_device_bytes = static_cast<double>(runs[0]->replica().plan().bytes(Tier::kDevice));
  const OffloadRow& moved = report.rows[1];
  report.bandwidth = moved.file_bytes / moved.waited_seconds;
  report.formula = alone / (alone + moved.file_bytes / report.bandwidth);
  return report;
}

}  // namespace lockstep::bench
