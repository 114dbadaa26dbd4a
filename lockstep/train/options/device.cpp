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
  if (options.parallel.tensor > 1) {
    return fmt::format("parallel.tensor = {}; use one rank", options.parallel.tensor);
  }
  if (options.parallel.pipeline > 1) {
    return fmt::format("parallel.pipeline = {}; use one rank", options.parallel.pipeline);
  }
  if (options.batch.workers > 1) {
    return fmt::format("{} workers; use one worker", options.batch.workers);
  }
  if (options.parallel.strategy == parallel::StrategyKind::kParameterServer) {
    return "parallel.strategy = \"parameter_server\"; use \"ddp\"";
  }
  if (options.offload.tiers.any()) return "offload.*; on a GPU all states lie in its memory so far";
  if (options.parallel.reduction == parallel::Reduction::kTree) {
    return "parallel.reduction = \"tree\"; use \"fast\"";
  }
  return "";
}

constexpr const char* kFp8Needs =
    "FP8 needs a GPU of compute capability 8.9 or later; use bf16 (train.precision = \"bf16\")";

// Of the extents of all matrices (nn/parts/linear.h).
constexpr std::int64_t kFp8Multiple = 16;

int least_capability(const TrainOptions& options) {
  return options.precision == plan::Precision::kFp8 ? kLeastFloat8Capability : kLeastCapability;
}

Device chosen_device(const TrainOptions& options) {
  const std::string unserved = unserved_by_gpu(options);
  if (options.device == "auto") {
    if (!unserved.empty() || !cuda_is_available()) return {};
    for (const GpuInfo& gpu : cuda_devices()) {
      if (gpu.capability >= least_capability(options)) return {DeviceKind::kCuda, gpu.index};
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

}  // namespace

Device device_of(const TrainOptions& options) {
  const Device device = chosen_device(options);
  if (options.precision != plan::Precision::kFp8) return device;
  if (device.kind == DeviceKind::kCpu) {
    const std::string unserved = unserved_by_gpu(options);
    const bool because = options.device == "auto" && !unserved.empty();
    fail(ErrorCode::kUnsupported, "{}{}", kFp8Needs,
         because ? fmt::format(". A GPU is left aside because of {}", unserved) : "");
  }
  for (const GpuInfo& gpu : cuda_devices()) {
    if (gpu.index != device.index || gpu.capability >= kLeastFloat8Capability) continue;
    fail(ErrorCode::kUnsupported, "{}; {} has {}.{}", kFp8Needs, name(device), gpu.capability / 10,
         gpu.capability % 10);
  }
  const nn::BatchShape shape = setup_of(options).shape;
  if (shape.tokens() % kFp8Multiple != 0 || shape.source_tokens() % kFp8Multiple != 0) {
    fail(ErrorCode::kInvalidArgument,
         "FP8 needs micro-batches whose tokens are a multiple of {}; train.micro_batch_size * "
         "train.seq_len is {} * {}",
         kFp8Multiple, shape.batch, shape.sequence);
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
