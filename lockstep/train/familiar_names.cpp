#include "lockstep/train/familiar_names.h"

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"

namespace lockstep::train {
namespace {

using Words = std::optional<std::string>;

struct FamiliarName {
  std::string_view other;
  std::string_view key;
};

constexpr FamiliarName kSameMeaning[] = {
    // Hugging Face's Trainer
    {"output_dir", "run.dir"},
    {"model_name_or_path", "run.from"},
    {"tokenizer_name", "data.tokenizer"},
    {"train_file", "data.text"},
    {"validation_file", "data.validation_text"},
    {"block_size", "train.seq"},
    {"max_seq_length", "train.seq"},
    {"per_device_train_batch_size", "train.micro_batch"},
    {"learning_rate", "schedule.rate"},
    {"warmup_steps", "schedule.warmup"},
    {"warmup_ratio", "schedule.warmup_ratio"},
    {"lr_scheduler_kwargs.min_lr_rate", "schedule.floor"},
    {"weight_decay", "optimizer.decay"},
    {"adam_beta1", "optimizer.beta1"},
    {"adam_beta2", "optimizer.beta2"},
    {"adam_epsilon", "optimizer.epsilon"},
    {"max_grad_norm", "optimizer.clip"},
    {"seed", "train.seed"},
    {"save_steps", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep_last"},
    {"eval_steps", "train.validate_every"},
    {"logging_steps", "train.log_every"},
    // both
    {"gradient_accumulation_steps", "train.accumulation"},
    // DeepSpeed
    {"train_batch_size", "train.batch"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch"},
    {"gradient_clipping", "optimizer.clip"},
    {"steps_per_print", "train.log_every"},
    {"optimizer.params.lr", "schedule.rate"},
    {"optimizer.params.eps", "optimizer.epsilon"},
    {"optimizer.params.weight_decay", "optimizer.decay"},
    {"optimizer.params.momentum", "optimizer.momentum"},
    {"scheduler.params.warmup_num_steps", "schedule.warmup"},
    {"scheduler.params.total_num_steps", "schedule.steps"},
    {"scheduler.params.warmup_max_lr", "schedule.rate"},
    {"scheduler.params.cos_min_ratio", "schedule.floor"},
    {"fp16.loss_scale_window", "loss_scale.patience"},
    {"zero_optimization.stage", "parallel.zero"},
    {"zero_optimization.overlap_comm", "parallel.overlap"},
    {"ddp_bucket_cap_mb", "parallel.bucket_mb"},
    {"zero_optimization.offload_optimizer.nvme_path", "offload.folder"},
    {"zero_optimization.offload_param.nvme_path", "offload.folder"},
};

// Whatever they say, the same is learned: what is shown and where, how data is fetched, how memory
// is handled.
constexpr std::string_view kNoEffect[] = {
    // Hugging Face's Trainer
    "do_train",
    "do_eval",
    "overwrite_output_dir",
    "run_name",
    "report_to",
    "logging_dir",
    "logging_first_step",
    "logging_strategy",
    "logging_nan_inf_filter",
    "log_level",
    "log_level_replica",
    "log_on_each_node",
    "disable_tqdm",
    "skip_memory_metrics",
    "include_num_input_tokens_seen",
    "per_device_eval_batch_size",
    "eval_accumulation_steps",
    "prediction_loss_only",
    "bf16_full_eval",
    "fp16_full_eval",
    "dataloader_num_workers",
    "dataloader_pin_memory",
    "dataloader_drop_last",
    "dataloader_persistent_workers",
    "dataloader_prefetch_factor",
    "remove_unused_columns",
    "ddp_find_unused_parameters",
    "ddp_broadcast_buffers",
    "ddp_backend",
    "local_rank",
    "no_cuda",
    "use_cpu",
    "tf32",
    "fp16_opt_level",
    "fp16_backend",
    "half_precision_backend",
    "torch_compile",
    "torch_compile_backend",
    "torch_compile_mode",
    "full_determinism",
    "gradient_checkpointing_kwargs.use_reentrant",
    "save_safetensors",
    "save_on_each_node",
    "hub_strategy",
    // DeepSpeed
    "wall_clock_breakdown",
    "dump_state",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "optimizer.params.torch_adam",
    "fp16.auto_cast",
    "fp16.hysteresis",
    "fp16.min_loss_scale",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.reduce_scatter",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.allgather_partitions",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.sub_group_size",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
    "zero_optimization.stage3_max_live_parameters",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save",
    "zero_optimization.offload_optimizer.pin_memory",
    "zero_optimization.offload_optimizer.buffer_count",
    "zero_optimization.offload_optimizer.fast_init",
    "zero_optimization.offload_optimizer.pipeline_read",
    "zero_optimization.offload_optimizer.pipeline_write",
    "zero_optimization.offload_param.pin_memory",
    "zero_optimization.offload_param.buffer_count",
    "zero_optimization.offload_param.buffer_size",
    "zero_optimization.offload_param.max_in_cpu",
    "aio.block_size",
    "aio.queue_depth",
    "aio.thread_count",
    "aio.single_submit",
    "aio.overlap_events",
    "activation_checkpointing.partition_activations",
    "activation_checkpointing.contiguous_memory_optimization",
    "activation_checkpointing.number_checkpoints",
    "activation_checkpointing.synchronize_checkpoint_boundary",
    "activation_checkpointing.profile",
    "flops_profiler.enabled",
    "flops_profiler.profile_step",
    "flops_profiler.module_depth",
    "flops_profiler.top_modules",
    "flops_profiler.detailed",
    "comms_logger.enabled",
    "comms_logger.verbose",
    "comms_logger.prof_all",
    "comms_logger.debug",
    "tensorboard.enabled",
    "tensorboard.output_path",
    "tensorboard.job_name",
    "wandb.enabled",
    "csv_monitor.enabled",
};

// Names that may say one thing alone, which is what is done anyway.
struct OnlyValue {
  std::string_view other;
  std::string_view value;                     // for people
  std::optional<std::string_view> same = {};  // another way to write it
  std::string_view why = {};
};
constexpr OnlyValue kOnlyValues[] = {
    {"push_to_hub", "false", {}, "lockstep export writes what can be uploaded"},
    {"label_smoothing_factor", "0", "0.0", "targets are not smoothed"},
    {"load_best_model_at_end", "false", {}, "a run ends with its last parameters"},
    {"save_only_model", "false", {}, "lockstep export writes the model alone"},
    {"auto_find_batch_size", "false", {}, "memory.auto = true finds a train.micro_batch that fits"},
    {"group_by_length", "false", {}, "sequences have one length"},
    {"ignore_data_skip", "false", {}, "a run that is resumed reads what it would have read"},
    {"eval_on_start", "false", {}, "the first validation comes after train.validate_every steps"},
    {"eval_delay", "0", "0.0", "the first validation comes after train.validate_every steps"},
    {"adafactor", "false", {}, "optimizer.kind has adamw, adam and sgd"},
    {"fsdp", "\"\"", "", "parallel.zero = 3 is what full_shard asks for"},
    {"deepspeed", "\"\"", "", "give that file itself: lockstep train FILE.json key=value ..."},
    {"scheduler.params.warmup_min_lr", "0", "0.0", "the warm-up begins at zero"},
    {"scheduler.params.warmup_min_ratio", "0", "0.0", "the warm-up begins at zero"},
    {"scheduler.params.warmup_type", "linear", {}, "the warm-up rises evenly"},
    {"scheduler.params.last_batch_iteration", "-1", {}, "a run that is resumed knows its step"},
    {"optimizer.params.adam_w_mode", "true", "1", "optimizer.type = \"Adam\" is the other one"},
    {"fp16.loss_scale", "0", "0.0", "the loss scale finds its own way"},
    {"prescale_gradients", "false", "0", "gradients are divided once they are added up"},
    {"gradient_predivide_factor", "1", "1.0", "gradients are divided once they are added up"},
    {"sparse_gradients", "false", "0", "gradients of embeddings are whole tables"},
    {"zero_optimization.offload_optimizer.ratio", "1", "1.0", "all of it is moved, or nothing"},
};

bool is_true(std::string_view text) { return text == "true" || text == "1"; }

// A switch that turns a setting to one value, and when off says nothing.
Config::Translate when_on(std::string value) {
  return [value = std::move(value)](std::string_view text) {
    return is_true(text) ? Words(value) : std::nullopt;
  };
}

Words unless_auto(std::string_view text) {
  return text == "auto" ? std::nullopt : Words(std::string(text));
}

Config::Translate only(const OnlyValue& name) {
  return [name](std::string_view text) -> Words {
    if (text == name.value || text == "auto" || text == name.same) {
      return std::nullopt;
    }
    fail(ErrorCode::kUnsupported, "{} = {} is not to be had, only {}: {}", name.other, text,
         name.value, name.why);
  };
}

std::string lower(std::string_view text) {
  std::string small(text);
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return small;
}

// "adamw_torch", "adamw_torch_fused", "AdamW", "Adam", "SGD"
Words optimizer_kind(std::string_view text) {
  const std::string kind = lower(text);
  if (kind == "auto") return std::nullopt;
  return kind.starts_with("adamw") ? "adamw" : kind;
}

// Hugging Face's "constant_with_warmup", DeepSpeed's "WarmupLR" and "WarmupDecayLR"
Words decline(std::string_view text) {
  const std::string kind = lower(text);
  if (kind == "auto") return std::nullopt;
  if (kind == "constant_with_warmup" || kind == "warmuplr") return "constant";
  if (kind == "warmupdecaylr") return "linear";
  if (kind == "warmupcosinelr" || kind == "cosine_with_min_lr") return "cosine";
  return kind;
}

// Those that have no floor of their own go down to zero.
Words decline_floor(std::string_view text) {
  const std::string kind = lower(text);
  return kind == "linear" || kind == "cosine" || kind == "warmupdecaylr" ? Words("0")
                                                                         : std::nullopt;
}

// eval_strategy, save_strategy: "steps" leaves it to eval_steps, save_steps.
Config::Translate strategy(std::string name) {
  return [name = std::move(name)](std::string_view text) -> Words {
    if (text == "steps") return std::nullopt;
    if (text == "no") return "0";
    fail(ErrorCode::kUnsupported, "{} = {} is not to be had, only steps or no", name, text);
  };
}

Words percent(std::string_view text) {
  if (text == "auto") return std::nullopt;
  return fmt::format("{}", parse_number("validation_split_percentage", text) / 100);
}

// Where a run goes on is its folder's matter.
Words resume(std::string_view text) {
  if (is_true(text)) return "true";
  if (text == "false" || text == "0") return "false";
  fail(ErrorCode::kUnsupported,
       "resume_from_checkpoint = {} is not to be had, only true or false: a run goes on in run.dir "
       "(output_dir); run.from begins another one with parameters from elsewhere",
       text);
}

// max_steps over 0 counts for more than num_train_epochs, whichever comes first.
void accept_length(Config& config) {
  const auto has_steps = std::make_shared<bool>(false);
  const auto is_given = [](std::string_view text) {
    return !text.starts_with('-') && text != "0" && text != "auto";
  };
  config.alias("max_steps", "train.steps", [=](std::string_view text) {
    *has_steps = is_given(text);
    return *has_steps ? Words(std::string(text)) : std::nullopt;
  });
  config.alias("max_steps", "train.epochs",
               [=](std::string_view text) { return is_given(text) ? Words("0") : std::nullopt; });
  config.alias("num_train_epochs", "train.epochs", [=](std::string_view text) {
    return *has_steps ? std::nullopt : Words(std::string(text));
  });
}

// "[0.9, 0.95]" comes as "0.9,0.95".
Config::Translate nth_of_list(std::size_t n) {
  return [n](std::string_view text) -> Words {
    if (text == "auto") return std::nullopt;
    for (std::size_t i = 0; i < n; ++i) {
      const auto comma = text.find(',');
      if (comma == std::string_view::npos) {
        fail(ErrorCode::kInvalidArgument, "optimizer.params.betas must be a list of two numbers");
      }
      text.remove_prefix(comma + 1);
    }
    return std::string(text.substr(0, text.find(',')));
  };
}

// DeepSpeed's "none", "cpu" and "nvme"
Words tier(std::string_view text) {
  const std::string where = lower(text);
  if (where == "auto") return std::nullopt;
  if (where == "none") return "device";
  if (where == "cpu") return "host";
  return where == "nvme" ? "file" : where;
}

// Its optimizer on the host takes the gradients there with it; not every stage has them in files.
Words tier_of_gradients(std::string_view text) {
  const Words where = tier(text);
  return where == "file" ? Words("host") : where;
}

// DeepSpeed gives the exponent of 2; 0 is what it takes by itself.
Words power_of_two(std::string_view text) {
  if (text == "auto") return std::nullopt;
  const int exponent = std::atoi(std::string(text).c_str());
  return std::to_string(exponent > 0 && exponent < 63 ? 1ull << exponent : 65536ull);
}

// What gradients are added up and sent in: "fp32", "fp16", "bf16", "bfp16"
Words gradients_in(std::string_view text) {
  if (text == "auto") return std::nullopt;
  return text == "fp32" ? "f32" : "compute";
}

// Of how many ranks the secondary partition is; those of a machine here, whatever the number.
Words keeps_secondary(std::string_view text) {
  if (text == "auto") return std::nullopt;
  return parse_number("zero_hpz_partition_size", text) > 1 ? Words("true") : Words("false");
}

}  // namespace

void accept_familiar_names(Config& config) {
  for (const FamiliarName& name : kSameMeaning) config.alias(name.other, name.key, unless_auto);
  for (const std::string_view flag : {"bf16", "bf16.enabled"}) {
    config.alias(flag, "train.precision", when_on("bf16"));
  }
  for (const std::string_view flag : {"fp16", "fp16.enabled"}) {
    config.alias(flag, "train.precision", when_on("f16"));
  }
  accept_length(config);
  for (const std::string_view name : kNoEffect) {
    config.alias(name, "train.log_every", [](std::string_view) { return Words(); });
  }
  for (const OnlyValue& name : kOnlyValues) {
    config.alias(name.other, "train.log_every", only(name));
  }
  config.alias("resume_from_checkpoint", "run.resume", resume);
  for (const char* name : {"eval_strategy", "evaluation_strategy"}) {
    config.alias(name, "train.validate_every", strategy(name));
  }
  config.alias("save_strategy", "checkpoint.every", strategy("save_strategy"));
  config.alias("validation_split_percentage", "data.validation_fraction", percent);
  config.alias("lr_scheduler_type", "schedule.floor", decline_floor);
  config.alias("scheduler.type", "schedule.floor", decline_floor);
  config.alias("ddp_timeout", "comm.timeout",
               [](std::string_view seconds) { return Words(std::string(seconds) + "s"); });
  config.alias("gradient_checkpointing", "train.recompute", when_on("full"));
  config.alias("optim", "optimizer.kind", optimizer_kind);
  config.alias("optimizer.type", "optimizer.kind", optimizer_kind);
  config.alias("optimizer.params.betas", "optimizer.beta1", nth_of_list(0));
  config.alias("optimizer.params.betas", "optimizer.beta2", nth_of_list(1));
  config.alias("lr_scheduler_type", "schedule.decline", decline);
  config.alias("scheduler.type", "schedule.decline", decline);
  constexpr std::string_view kOptimizerDevice = "zero_optimization.offload_optimizer.device";
  config.alias(kOptimizerDevice, "offload.optimizer", tier);
  config.alias(kOptimizerDevice, "offload.gradients", tier_of_gradients);
  config.alias("zero_optimization.offload_param.device", "offload.parameters", tier);
  // ZeRO++
  config.alias("zero_optimization.zero_quantized_weights", "parallel.gather_weights",
               when_on("int8"));
  config.alias("zero_optimization.zero_quantized_gradients", "parallel.reduce_gradients",
               when_on("int4"));
  config.alias("zero_optimization.zero_hpz_partition_size", "parallel.secondary", keeps_secondary);
  config.alias("activation_checkpointing.cpu_checkpointing", "offload.activations",
               when_on("host"));
  config.alias("communication_data_type", "train.gradients", gradients_in);
  config.alias("data_types.grad_accum_dtype", "train.gradients", gradients_in);
  config.alias("fp16.initial_scale_power", "loss_scale.initial", power_of_two);
}

}  // namespace lockstep::train
