// Which device a worker computes on.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/comm/device_communicator.h"
#include "lockstep/ops/gpu_limits.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/tensor/cuda_driver.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {
namespace {

int ranks_of(const TrainOptions& options) {
  return options.batch.workers * parallel::ranks_per_worker(options.parallel);
}

// Codecs of a GPU work in its memory.
std::string moved_and_quantized(const TrainOptions& options) {
  const nn::Tiers& tiers = options.offload.tiers;
  const bool gradients = tiers.gradients != Tier::kDevice;
  if (!gradients && tiers.parameters == Tier::kDevice) return "";
  const std::string moved =
      fmt::format("offload.{} = \"{}\"", gradients ? "gradients" : "parameters",
                  name(gradients ? tiers.gradients : tiers.parameters));
  const parallel::Compression compression = options.parallel.compression.compression;
  if (compression != parallel::Compression::kNone) {
    return fmt::format("{} with parallel.compression = \"{}\"; leave one of them out", moved,
                       name(compression));
  }
  const std::string quantized = parallel::zero_plus_plus(options.parallel);
  if (quantized.empty()) return "";
  return fmt::format("{} with {}; leave one of them out", moved, quantized);
}

// Lists that are longer than the kernels of GPUs take.
std::string too_long_for_gpu(const ModelChoice& model) {
  const std::size_t pairs =
      model.rope_scaling == RopeScaling::kLongRope
          ? std::max(model.rope_short_factors.size(), model.rope_long_factors.size())
          : 0;
  if (pairs > static_cast<std::size_t>(ops::kMostSlowedPairs)) {
    return fmt::format(
        "model.rope_scaling = \"longrope\" with {} pairs that turn in a head; at most {} do", pairs,
        ops::kMostSlowedPairs);
  }
  if (model.relative_buckets > ops::kMostBuckets) {
    return fmt::format("model.relative_buckets = {}; take at most {}", model.relative_buckets,
                       ops::kMostBuckets);
  }
  return "";
}

// What a GPU does not do yet; empty: it does all of it.
std::string unserved_by_gpu(const TrainOptions& options) {
  if (std::string unserved = too_long_for_gpu(options.model); !unserved.empty()) return unserved;
  if (options.parallel.algorithm != kAutoAlgorithm) {
    return fmt::format("parallel.algorithm = \"{}\"; leave it \"auto\"",
                       options.parallel.algorithm);
  }
  if (ranks_of(options) > 1 && options.precision == plan::Precision::kFp8) {
    if (options.parallel.zero > 0) {
      return fmt::format(
          "train.precision = \"fp8\" with parallel.zero = {}; use bf16, or DDP (parallel.zero = 0)",
          options.parallel.zero);
    }
    if (options.parallel.strategy == parallel::StrategyKind::kParameterServer) {
      return "train.precision = \"fp8\" with parameter servers; use bf16";
    }
    if (parallel::ranks_per_model(options.parallel) > 1) {
      return fmt::format("train.precision = \"fp8\" with {} ranks of a mesh; use bf16",
                         ranks_of(options));
    }
  }
  if (ranks_of(options) > 1 && options.parallel.machines > 1 &&
      options.parallel.comm.device_backend == DeviceBackend::kNative) {
    return "ranks on several nodes with comm.device_backend = \"native\"; use \"auto\"";
  }
  return moved_and_quantized(options);
}

constexpr const char* kFp8Needs =
    "FP8 needs a GPU of compute capability 8.9 or later; use bf16 (train.precision = \"bf16\")";

// Of the extents of all matrices (nn/parts/linear.h).
constexpr std::int64_t kFp8Multiple = 16;

int least_capability(const TrainOptions& options) {
  return options.precision == plan::Precision::kFp8 ? kLeastFloat8Capability : kLeastCapability;
}

// The GPUs that can run it.
std::vector<int> gpus_for(const TrainOptions& options) {
  std::vector<int> indices;
  for (const GpuInfo& gpu : cuda_devices()) {
    if (gpu.capability >= least_capability(options)) indices.push_back(gpu.index);
  }
  return indices;
}

// Why ranks of this node cannot have a GPU each; empty if they can, or may share.
std::string too_many_ranks(const TrainOptions& options, std::size_t gpus) {
  const int ranks = options.node_place.ranks;
  if (options.share_device || gpus >= static_cast<std::size_t>(ranks)) return "";
  return fmt::format(
      "{} ranks on a node with {}; start one for each GPU, or set device.share = true", ranks,
      gpus == 1 ? "one GPU for them" : fmt::format("{} GPUs for them", gpus));
}

// Why workers cannot exchange the data of their GPUs; empty if they can.
std::string no_nccl(const TrainOptions& options) {
  const DeviceBackend backend = options.parallel.comm.device_backend;
  const bool needs_it = backend == DeviceBackend::kNccl ||
                        (backend != DeviceBackend::kNative && options.parallel.machines > 1);
  // Servers, and all that workers exchange with them, are on the host.
  const bool by_servers = options.parallel.strategy == parallel::StrategyKind::kParameterServer;
  if (ranks_of(options) == 1 || by_servers || !needs_it) return "";
  const NcclInfo nccl = nccl_info();
  if (nccl.problem.empty()) return "";
  return fmt::format("{} ranks without NCCL: {}", ranks_of(options), nccl.problem);
}

bool can_use_gpu() { return has_cuda_driver() && cuda_is_available(); }

// Why `auto` takes no GPU; empty if it does. Every rank decides by what it finds, so only what all
// ranks of one node find alike may decide.
std::string left_aside(const TrainOptions& options) {
  std::string why = unserved_by_gpu(options);
  if (why.empty()) why = too_many_ranks(options, gpus_for(options).size());
  if (why.empty() && ranks_of(options) > 1 && options.parallel.machines > 1) {
    why = "\"auto\" on several nodes; run.device = \"cuda\" takes the GPUs of all of them";
  }
  return why.empty() ? no_nccl(options) : why;
}

// Of several GPUs every rank of a node gets its own.
Device chosen_device(const TrainOptions& options) {
  std::string unserved = unserved_by_gpu(options);
  const auto own_gpu = [&](const std::vector<int>& gpus) -> Device {
    const auto place = static_cast<std::size_t>(options.node_place.rank);
    return {DeviceKind::kCuda, gpus[place % gpus.size()]};
  };
  if (options.device == "auto") {
    if (!can_use_gpu() || gpus_for(options).empty()) return {};
    return left_aside(options).empty() ? own_gpu(gpus_for(options)) : Device{};
  }
  Device device = parse_device(options.device);
  if (device.kind == DeviceKind::kCuda && can_use_gpu()) {
    const bool is_named = options.device != "cuda";
    const std::vector<int> gpus = gpus_for(options);
    if (!is_named && !gpus.empty()) device = own_gpu(gpus);
    if (unserved.empty()) unserved = too_many_ranks(options, is_named ? 1 : gpus.size());
    if (unserved.empty()) unserved = no_nccl(options);
  }
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

void bind_device(Config& config, TrainOptions& options) {
  config.bind(
      "run.device", options.device,
      "Where a worker computes: cpu, cuda (each rank of a node has its own GPU), cuda:1, or "
      "auto: GPUs if they can be used.");
  config.bind("device.share", options.share_device,
              "Whether ranks of a node may use the same GPU. NVIDIA's multi-process service "
              "(nvidia-cuda-mps-control -d) lets them run at the same time.");
}

void check_device(const TrainOptions& options) {
  const Device device = device_of(options);
  memory_of(device);
  if (device == Device{} || !parallel::keeps_two_versions(options.parallel)) return;
  fail(ErrorCode::kUnsupported,
       "parallel.pipeline_schedule = \"pipedream_2bw\" runs on CPUs, not on {}; take 1f1b, or "
       "train.device = \"cpu\"",
       name(device));
}

std::string unused_gpu(const TrainOptions& options) {
  if (options.device != "auto") return "";
  if (!can_use_gpu()) return "";
  const std::string unserved = left_aside(options);
  if (unserved.empty()) return "";
  return "computes on the CPU, not on the GPU, which does not support " + unserved;
}

std::unique_ptr<Ops> make_ops(const TrainOptions& options) {
  return lockstep::make_ops(device_of(options), threads_of(options));
}

}  // namespace lockstep::train
