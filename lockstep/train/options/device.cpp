// Which device a worker computes on.
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {
namespace {

// What a GPU does not do yet; empty: it does all of it.
std::string unserved_by_gpu(const TrainOptions& options) {
  if (options.batch.workers > 1) {
    return fmt::format("{} workers; use one worker", options.batch.workers);
  }
  if (options.parallel.strategy == parallel::StrategyKind::kParameterServer) {
    return "parallel.strategy = \"parameter_server\"; use \"ddp\"";
  }
  if (options.offload.tiers.any()) return "offload.*; leave it out";
  if (options.memory_auto)
    return "memory.auto; set train.recompute and train.micro_batch_size yourself";
  if (options.parallel.reduction == parallel::Reduction::kTree) {
    return "parallel.reduction = \"tree\"; use \"fast\"";
  }
  return "";
}

}  // namespace

Device device_of(const TrainOptions& options) {
  const std::string unserved = unserved_by_gpu(options);
  if (options.device == "auto") {
    if (!unserved.empty() || !cuda_is_available()) return {};
    for (const GpuInfo& gpu : cuda_devices()) {
      if (gpu.capability >= kLeastCapability) return {DeviceKind::kCuda, gpu.index};
    }
    return {};
  }
  const Device device = parse_device(options.device);
  if (device.kind == DeviceKind::kCuda && !unserved.empty()) {
    fail(ErrorCode::kUnsupported,
         "run.device = \"{}\" does not support {}, or set run.device = \"cpu\"", options.device,
         unserved);
  }
  return device;
}

void check_device(const TrainOptions& options) { memory_of(device_of(options)); }

std::string unused_gpu(const TrainOptions& options) {
  if (options.device != "auto") return "";
  const std::string unserved = unserved_by_gpu(options);
  if (unserved.empty() || !cuda_is_available()) return "";
  return "computes on the CPU, not on the GPU, which does not support " + unserved;
}

std::unique_ptr<Ops> make_ops(const TrainOptions& options) {
  return lockstep::make_ops(device_of(options), threads_of(options));
}

}  // namespace lockstep::train
