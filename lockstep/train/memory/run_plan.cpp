#include "lockstep/train/memory/run_plan.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"
#include "lockstep/parallel/footprint.h"
#include "lockstep/parallel/gradients/shared_blocks.h"
#include "lockstep/parallel/offload/options.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/train/memory/mirror_memory.h"
#include "lockstep/train/memory/smaller_run.h"

namespace lockstep::train {
namespace {

std::string exactly(std::size_t bytes) {
  return fmt::format("{} ({} bytes)", format_bytes(static_cast<double>(bytes)),
                     format_count(bytes));
}

void add_tiers(const nn::Tiers& present, const nn::Tiers& chosen,
               std::vector<std::string>& changes) {
  const auto add = [&](const char* key, Tier before, Tier after) {
    if (before != after) changes.push_back(fmt::format("{} = \"{}\"", key, name(after)));
  };
  add("offload.optimizer", present.optimizer, chosen.optimizer);
  add("offload.gradients", present.gradients, chosen.gradients);
  add("offload.parameters", present.parameters, chosen.parameters);
  add("offload.activations", present.activations, chosen.activations);
}

std::string settings(const TrainOptions& options, const SmallerRun& run) {
  std::vector<std::string> changes;
  add_tiers(options.offload.tiers, run.tiers, changes);
  if (run.zero != options.parallel.zero) {
    changes.push_back(fmt::format("parallel.zero = {}", run.zero));
  }
  if (run.recompute != options.recompute) {
    changes.push_back(fmt::format("train.recompute = \"{}\"", name(run.recompute)));
  }
  if (run.batch.micro != solved(options.batch).micro) {
    changes.push_back(
        fmt::format("train.micro_batch_size = {} and train.gradient_accumulation_steps = {}",
                    run.batch.micro, run.batch.accumulation));
  }
  if (run.gradient_dtype != options.gradient_dtype) {
    changes.push_back(fmt::format("train.gradient_dtype = \"{}\"", name(run.gradient_dtype)));
  }
  return fmt::format("{}", fmt::join(changes, ", "));
}

bool is_within(std::size_t bytes, std::size_t limit) { return limit == 0 || bytes <= limit; }

// Tries twice as many workers, four times as many, and so on, with the present tiers or those of
// `least`. Returns the first number that fits, as text, or "".
std::string with_more_workers(const TrainOptions& options, const SmallerRun& least,
                              const Ops& ops) {
  const BatchChoice present = solved(options.batch);
  TrainOptions more = options;
  for (int workers = 2 * present.workers; workers / present.context <= present.sequences;
       workers *= 2) {
    more.batch = {.sequence = present.sequence,
                  .sequences = present.sequences,
                  .micro = 1,
                  .workers = workers,
                  .context = present.context};
    more.offload.tiers = options.offload.tiers;
    SmallerRun run = nearest_run(more, ops, options.memory_limit, 0, {.tiers = false});
    if (!run.fits && least.tiers != options.offload.tiers) {
      more.offload.tiers = least.tiers;
      run = nearest_run(more, ops, options.memory_limit, 0, {.tiers = false});
    }
    if (!run.fits) continue;
    const std::string how = settings(options, run);
    // Servers of their own come on top: `lockstep train --ranks` counts workers, too.
    const int servers =
        parallel::has_own_servers(options.parallel) ? options.parallel.server.servers : 0;
    return fmt::format(
        "; with {} workers{}{}{} each takes {}", workers,
        servers > 0 ? fmt::format(" ({} ranks, with servers)", workers + servers) : "",
        how.empty() ? "" : " and ", how, exactly(run.bytes));
  }
  return "";
}

std::string classes_of(std::span<const GroupBytes> classes) {
  std::size_t activations = 0;
  std::vector<std::string> parts;
  for (const GroupBytes& group : classes) {
    if (group.group.starts_with("activations")) {
      activations += group.bytes;
    } else if (group.group == "parameters" || group.group == "gradients" ||
               group.group == "optimizer") {
      parts.push_back(
          fmt::format("{} {}", group.group, format_bytes(static_cast<double>(group.bytes))));
    }
  }
  parts.push_back(fmt::format("activations {}", format_bytes(static_cast<double>(activations))));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Parameter servers have the optimizer's states; beside a GPU a worker's, which are collected for a
// checkpoint, are on the host.
nn::Tiers tiers_of(const TrainOptions& options, Device device) {
  nn::Tiers tiers = options.offload.tiers;
  const bool with_servers = options.batch.workers > 1 &&
                            options.parallel.strategy == parallel::StrategyKind::kParameterServer;
  if (with_servers && device != Device{}) tiers.optimizer = Tier::kHost;
  return tiers;
}

}  // namespace

nn::MemoryPlan plan_run(const TrainOptions& options, const Ops& ops, int worker,
                        nn::Places places) {
  const parallel::WorkerPosition position = worker_position_of(options, worker);
  const nn::Model model = model_of(options);
  nn::MemoryPlan plan = nn::plan_memory(
      model, setup_of(options), ops, optimizer_state_of(options),
      parallel::sharding_of(options.parallel, position), tiers_of(options, ops.device()), places,
      plan::stage_buffers(step_schedule_of(options), options.parallel.stage));
  parallel::add_memory(options.parallel, options.optimizer, position, plan);
  if (const std::size_t bytes = parallel::shared_block_memory(model, plan); bytes > 0) {
    plan.outside.push_back(
        {.name = "shared blocks", .group = parallel::kCommunicationGroup, .bytes = bytes});
  }
  if (mirrors_shards(options, plan.device)) {
    const std::vector<Request> mirror = mirror_memory(options, plan, worker);
    plan.outside.insert(plan.outside.end(), mirror.begin(), mirror.end());
  }
  return plan;
}

namespace {

// For what CUDA itself takes once operations run: kernels and graphs.
constexpr std::size_t kGpuReserve = std::size_t{512} << 20;

// "; process 4711 (python3) holds 71.2 GiB there", and all others; empty if no other process is
// known.
std::string holders_of(Device device) {
  std::string text;
  for (const GpuUser& user : cuda_memory_users(device.index)) {
    text += fmt::format("; process {}{} holds {} there", user.pid,
                        user.name.empty() ? "" : fmt::format(" ({})", user.name),
                        user.bytes == 0 ? "memory" : format_bytes(static_cast<double>(user.bytes)));
  }
  return text;
}

// Memory that other processes hold on a GPU is not available.
void check_gpu_memory(const nn::MemoryPlan& plan, Device device) {
  if (device.kind != DeviceKind::kCuda) return;
  const std::size_t free = free_cuda_memory(device.index);
  const std::size_t needed = plan.bytes(Tier::kDevice);
  if (needed + kGpuReserve <= free) return;
  fail(ErrorCode::kInvalidArgument,
       "this run takes {} on {}: {}; {} are free there, of which CUDA itself needs {}{}. Take a "
       "smaller train.micro_batch_size (the step stays the same), train.recompute = \"full\", or "
       "end what else uses the GPU",
       exactly(needed), name(device), classes_of(plan.by_class(Tier::kDevice)), exactly(free),
       exactly(kGpuReserve), holders_of(device));
}

}  // namespace

std::size_t gpu_budget(Device device) {
  const std::size_t free = free_cuda_memory(device.index);
  return free > kGpuReserve ? free - kGpuReserve : 1;
}

void check_limit(const TrainOptions& options, const nn::MemoryPlan& plan, const Ops& ops,
                 int worker) {
  check_gpu_memory(plan, ops.device());
  const std::size_t limit = options.memory_limit;
  const bool fits = is_within(plan.bytes(), limit);
  const std::size_t on_device = plan.bytes(Tier::kDevice);
  if (fits && is_within(on_device, options.device_limit)) return;
  const auto takes = [&](const SmallerRun& run) {
    return options.device_limit == 0 ? exactly(run.bytes)
                                     : fmt::format("{}, {} of them on the device",
                                                   exactly(run.bytes), exactly(run.device_bytes));
  };
  std::string advice;
  const SmallerRun run = nearest_run(options, ops, limit, worker);
  const std::string how = settings(options, run);
  if (run.fits) {
    advice = fmt::format("the nearest setting that fits is {}, which takes {}", how, takes(run));
  } else {
    advice = fmt::format(
        "no choice of offload.*, parallel.zero, train.recompute, train.micro_batch_size and "
        "train.gradient_dtype fits; {} is {}{}{}{}",
        limit > 0 && options.device_limit > 0 ? "the closest" : "the least", takes(run),
        how.empty() ? "" : ", with ", how, with_more_workers(options, run, ops));
  }
  const std::string over =
      fits ? fmt::format("{} on the device, over memory.device_limit = {}", exactly(on_device),
                         exactly(options.device_limit))
           : fmt::format("{}, over memory.limit = {}", exactly(plan.bytes()), exactly(limit));
  fail(ErrorCode::kInvalidArgument, "this run needs {}: {}; {}", over,
       classes_of(fits ? plan.by_class(Tier::kDevice) : plan.by_class()), advice);
}

}  // namespace lockstep::train
