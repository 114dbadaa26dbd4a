#include "lockstep/bench/offload/device_bench.h"

#include <algorithm>
#include <memory>

#include "lockstep/base/system/clock.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/bench/statistics.h"
#include "lockstep/bench/train/synthetic_batches.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::bench {
namespace {

using train::TrainOptions;

constexpr int kFirstSteps = 3;  // the second micro-batch of a shape is captured
constexpr int kTimedRuns = 5;

template <class F>
double median_of_runs(F&& once) {
  std::vector<double> seconds;
  for (int i = 0; i <= kTimedRuns; ++i) {
    const auto begin = SteadyClock::now();
    once();
    if (i > 0) seconds.push_back(seconds_since(begin));
  }
  std::ranges::sort(seconds);
  return quantile(seconds, 0.5);
}

// Bytes a second of copies between a GPU and pinned memory, one direction alone.
double bus_rate(Device device, bool to_host) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  const Shape shape{static_cast<std::int64_t>(kBytes)};
  const PinnedBuffer here(kBytes);
  const Buffer there(kBytes, device);
  const Tensor on_host = here.tensor(DType::kU8, shape);
  const Tensor on_device = there.tensor(DType::kU8, shape);
  Stream stream(device);
  const double seconds = median_of_runs([&] {
    stream.run([&] { to_host ? copy(on_host, on_device) : copy(on_device, on_host); });
    stream.synchronize();
  });
  return static_cast<double>(kBytes) / seconds;
}

// Of the whole model, by elements that do not fit in caches. Gradients and parameters are in
// staging chunks, as in a run (parallel/offload/staged_update.h).
double seconds_of_update(const nn::MemoryPlan& plan, const optim::OptimizerOptions& optimizer) {
  constexpr std::size_t kMost = std::size_t{1} << 27;
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  constexpr std::size_t kSlots = 4;
  const std::size_t elements = std::min(plan.flat.elements(), kMost);
  const auto count = static_cast<std::int64_t>(elements);
  const auto make = [](DType dtype, std::int64_t of) {
    Buffer buffer(Tensor::bytes_of(dtype, {of}));
    fill_zero(buffer.tensor(dtype, {of}));
    return buffer;
  };
  const Buffer master = make(DType::kF32, count);
  const Buffer first = make(DType::kF32, count);
  const Buffer second = make(DType::kF32, count);
  const auto staged = static_cast<std::int64_t>(kSlots * kChunk);
  const Buffer gradients = make(plan.setup.gradient, staged);
  const Buffer parameters = make(plan.setup.dtype, staged);
  const bool rounds = plan.setup.dtype != DType::kF32;
  const auto ops = make_cpu_ops(std::max(1, CpuSet::of_this_thread().count() - 1));
  const double seconds = median_of_runs([&] {
    for (std::size_t done = 0; done < elements; done += kChunk) {
      const auto at = static_cast<std::int64_t>(done);
      const auto some = static_cast<std::int64_t>(std::min(kChunk, elements - done));
      const auto slot = static_cast<std::int64_t>(done / kChunk % kSlots * kChunk);
      const auto part = [&](const Buffer& buffer) {
        return buffer.tensor(DType::kF32, {count}).slice(at, some);
      };
      optim::update(
          *ops, optimizer, {},
          {.master = part(master),
           .gradient = gradients.tensor(plan.setup.gradient, {staged}).slice(slot, some),
           .parameter =
               rounds ? parameters.tensor(plan.setup.dtype, {staged}).slice(slot, some) : Tensor(),
           .first_moment = optim::has_moments(optimizer) ? part(first) : Tensor(),
           .second_moment = optim::has_moments(optimizer) ? part(second) : Tensor(),
           .velocity = optim::has_velocity(optimizer) ? part(first) : Tensor()});
    }
    ops->synchronize();
  });
  return seconds * static_cast<double>(plan.flat.elements()) / static_cast<double>(elements);
}

// A micro-batch with parameters, gradients and activations on the device.
void measure_compute(const TrainOptions& options, StepParts& parts) {
  const auto ops = train::make_ops(options);
  const nn::Tiers tiers{.optimizer = Tier::kHost};
  nn::Model model = train::model_of(options);
  nn::MemoryPlan plan =
      nn::plan_memory(model, train::setup_of(options), *ops, nn::OptimizerState::kNone, {}, tiers);
  nn::Replica replica(std::move(model), std::move(plan), *ops);
  replica.initialise(1, train::threads_of(options));
  const SyntheticBatches batches(train::formula_shape_of(options), replica.setup().shape, 1);
  const nn::Batch& batch = batches.all().front();
  parts.compute_seconds = median_of_runs([&] {
    replica.forward_backward(batch);
    ops->synchronize();
  });
  parts.forward_seconds = median_of_runs([&] {
    replica.evaluate(batch);
    ops->synchronize();
  });
}

DeviceOffloadRow measure_row(const char* name, const TrainOptions& options, int steps,
                             TrainOptions& settled) {
  DeviceOffloadRow row{.name = name};
  row.bar = options.offload.tiers.delayed_update ? DeviceOffloadReport::kDelayedBar
                                                 : DeviceOffloadReport::kBar;
  const auto ops = train::make_ops(options);
  train::Trainer trainer(options, *ops);
  const nn::MemoryPlan& plan = trainer.replica().plan();
  settled = trainer.options();
  row.device_bytes = static_cast<double>(plan.bytes(Tier::kDevice));
  row.parts.micro_batches = train::solved(options.batch).accumulation;
  row.parts.micro_batch = bytes_of_micro_batch(plan, row.parts.micro_batches);
  row.parts.update = bytes_of_update(plan);
  row.parts.overlaps = trainer.overlaps_update();
  row.parts.delayed = plan.tiers.delayed_update;
  const SyntheticBatches batches(train::formula_shape_of(options), plan.setup.shape,
                                 static_cast<int>(row.parts.micro_batches));
  std::vector<double> seconds;
  std::int64_t tokens = 0;
  for (int i = 0; i < kFirstSteps + steps; ++i) {
    const train::StepMetrics step = trainer.step(batches.all(), [&] { return batches.all(); });
    if (i >= kFirstSteps) seconds.push_back(step.seconds);
    tokens = step.tokens;
  }
  trainer.strategy().collect();
  std::ranges::sort(seconds);
  row.step_seconds = quantile(seconds, 0.5);
  row.tokens_per_second = static_cast<double>(tokens) / row.step_seconds;
  return row;
}

}  // namespace

bool DeviceOffloadReport::holds() const {
  return std::ranges::all_of(rows,
                             [](const DeviceOffloadRow& row) { return row.ratio() <= row.bar; });
}

DeviceOffloadReport run_device_offload(const DeviceOffloadBench& bench) {
  TrainOptions options = bench.options;
  if (!options.offload.tiers.any()) options.offload.tiers.optimizer = Tier::kHost;
  DeviceOffloadReport report;
  TrainOptions settled;
  report.rows.push_back(measure_row("as set", options, bench.steps, settled));
  const nn::Tiers& tiers = options.offload.tiers;
  const bool can_delay = !tiers.delayed_update && !tiers.in_place &&
                         tiers.optimizer == Tier::kHost && !tiers.has_files() &&
                         train::setup_of(options).dtype != DType::kF32;
  if (can_delay) {
    TrainOptions delayed = settled;  // with the same recomputation
    delayed.offload.tiers.delayed_update = true;
    report.rows.push_back(measure_row("with a delayed update", delayed, bench.steps, settled));
  }

  const auto ops = train::make_ops(settled);
  const nn::MemoryPlan plan =
      nn::plan_memory(train::model_of(settled), train::setup_of(settled), *ops,
                      nn::OptimizerState::kNone, {}, {.optimizer = Tier::kHost}, nn::Places::kNone);
  report.parameters = static_cast<double>(plan.flat.count());
  StepParts alone;
  measure_compute(settled, alone);
  alone.update_seconds = seconds_of_update(plan, settled.optimizer);
  alone.down_rate = bus_rate(ops->device(), true);
  alone.up_rate = bus_rate(ops->device(), false);
  for (DeviceOffloadRow& row : report.rows) {
    row.parts.compute_seconds = alone.compute_seconds;
    row.parts.forward_seconds = alone.forward_seconds;
    if (tiers.optimizer == Tier::kHost) row.parts.update_seconds = alone.update_seconds;
    row.parts.down_rate = alone.down_rate;
    row.parts.up_rate = alone.up_rate;
  }
  return report;
}

}  // namespace lockstep::bench
