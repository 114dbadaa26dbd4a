// The keys that every run reads.
#include "lockstep/train/run/unused_settings.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kAlwaysRead[] = {
    "run.dir",
    "run.name",
    "run.resume",
    "run.init_from",
    "run.device",
    // One of these, and of validation_* the one that goes with it; the others are refused.
    "data.text",
    "data.tokens",
    "data.mixture",
    "data.pairs",
    "data.table",
    "data.validation_tokens",
    "data.validation_text",
    "model.name",
    "train.global_batch_size",
    "train.micro_batch_size",
    "train.gradient_accumulation_steps",
    "train.precision",
    "train.recompute",
    "train.threads",
    "train.seed",
    "train.epochs",
    "train.log_every",
    "train.trace",
    "sample.every",
    "live.port",
    "checkpoint.every",
    "checkpoint.keep_last",
    "checkpoint.keep_every",
    "checkpoint.async_save",
    "memory.limit",
    "memory.device_limit",
    "memory.auto",
    "debug.slow_rank",
    "optimizer.kind",
    "optimizer.weight_decay",
    "optimizer.max_grad_norm",
    "optimizer.learning_rate",
    "schedule.warmup_steps",
    "schedule.decay",
    "parallel.strategy",
    "parallel.tensor",
    "parallel.pipeline",
    "parallel.context",
    "parallel.expert",
    // Refused where there are no tensor groups.
    "parallel.sequence",
    "parallel.reduction",
    // Refused where they do not fit: with servers, and below the stage that they are for.
    "parallel.zero",
    "parallel.reshard_after_forward",
    "parallel.quantized_weights",
    "parallel.compression",
    "offload.optimizer",
    "offload.gradients",
    "offload.parameters",
    "offload.in_place",
    "offload.delayed_update",
    "offload.activations",
    "survive.hang_timeout",
    "comm.timeout",
    "comm.backend",
    "comm.recorder_dir",
};

}  // namespace

std::span<const std::string_view> always_read_settings() { return kAlwaysRead; }

}  // namespace lockstep::train
