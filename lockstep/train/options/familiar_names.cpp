#include "lockstep/train/options/familiar_names.h"

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/text.h"
#include "lockstep/train/options/familiar_names_tables.h"
#include "lockstep/train/options/familiar_names_words.h"

namespace lockstep::train {
namespace {

using familiar::is_true;
using familiar::lower;
using familiar::unless_auto;
using familiar::when_on;
using familiar::Words;

Config::Translate only(const familiar::OnlyValue& name) {
  return [name](std::string_view text) -> Words {
    const std::string given = lower(text);
    if (given == name.value || given == "auto" || given == name.same) {
      return std::nullopt;
    }
    fail(ErrorCode::kUnsupported, "{} = {} is not supported, only {}: {}", name.other, text,
         name.value, name.why);
  };
}

// "adamw_torch", "adamw_torch_fused", "AdamW", "Adam", "SGD"
Words optimizer_kind(std::string_view text) {
  const std::string kind = lower(text);
  if (kind == "auto") return std::nullopt;
  return kind.starts_with("adamw") ? "adamw" : kind;
}

// Hugging Face's "constant_with_warmup", DeepSpeed's "WarmupLR" and "WarmupDecayLR"
Words decay(std::string_view text) {
  const std::string kind = lower(text);
  if (kind == "auto") return std::nullopt;
  if (kind == "constant_with_warmup" || kind == "warmuplr") return "constant";
  if (kind == "warmupdecaylr") return "linear";
  if (kind == "warmupcosinelr" || kind == "cosine_with_min_lr") return "cosine";
  return kind;
}

// Those that have no minimum of their own go down to zero.
Words min_lr_ratio(std::string_view text) {
  const std::string kind = lower(text);
  return kind == "linear" || kind == "cosine" || kind == "warmupdecaylr" ? Words("0")
                                                                         : std::nullopt;
}

// eval_strategy, save_strategy: "steps" leaves it to eval_steps, save_steps.
Config::Translate strategy(std::string name) {
  return [name = std::move(name)](std::string_view text) -> Words {
    if (text == "steps") return std::nullopt;
    if (text == "no") return "0";
    fail(ErrorCode::kUnsupported, "{} = {} is not supported, only steps or no", name, text);
  };
}

// warmup_steps below 1 are a part of the run.
bool is_part_of_run(std::string_view text) {
  const double steps = std::strtod(std::string(text).c_str(), nullptr);
  return steps > 0 && steps < 1;
}

Words percent(std::string_view text) {
  if (text == "auto") return std::nullopt;
  return fmt::format("{}", parse_number("validation_split_percentage", text) / 100);
}

// A run is resumed in its own folder.
Words resume(std::string_view text) {
  if (is_true(text)) return "true";
  if (text == "false" || text == "0") return "false";
  fail(ErrorCode::kUnsupported,
       "resume_from_checkpoint = {} is not supported, only true or false. A run is resumed in its "
       "run.dir (output_dir); run.init_from starts a new run with parameters from elsewhere",
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

// A run writes event files for TensorBoard, whatever is asked for; nothing else is reported to.
Words report_to(std::string_view text) {
  for (const std::string_view one : split_text(text, ',')) {
    const std::string where = lower(trim(one));
    if (where.empty() || where == "none" || where == "all" || where == "auto") continue;
    if (where == "tensorboard") continue;
    fail(ErrorCode::kUnsupported,
         "report_to = {} is not supported, only tensorboard or none: a run writes TensorBoard's "
         "event files and metrics.jsonl into its run.dir",
         where);
  }
  return std::nullopt;
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

// The type in which gradients are summed and sent: "fp32", "fp16", "bf16", "bfp16"
Words gradients_in(std::string_view text) {
  if (text == "auto") return std::nullopt;
  return text == "fp32" ? "f32" : "compute";
}

// The number of ranks of the secondary partition; here it is the ranks of a node, whatever the
// number.
Words keeps_secondary(std::string_view text) {
  if (text == "auto") return std::nullopt;
  return parse_number("zero_hpz_partition_size", text) > 1 ? Words("true") : Words("false");
}

}  // namespace

void accept_familiar_names(Config& config) {
  for (const familiar::Name& name : familiar::kSameMeaning)
    config.alias(name.other, name.key, unless_auto);
  for (const std::string_view flag : {"bf16", "bf16.enabled"}) {
    config.alias(flag, "train.precision", when_on("bf16"));
  }
  for (const std::string_view flag : {"fp16", "fp16.enabled"}) {
    config.alias(flag, "train.precision", when_on("f16"));
  }
  accept_length(config);
  for (const std::string_view name : familiar::kNoEffect) {
    config.ignore(name, familiar::asked_for);
  }
  for (const familiar::OnlyValue& name : familiar::kOnlyValues) {
    config.alias(name.other, "train.log_every", only(name));
  }
  config.alias("resume_from_checkpoint", "run.resume", resume);
  config.alias("report_to", "train.log_every", report_to);
  config.alias("do_eval", "train.validate_every", [](std::string_view text) {
    return lower(text) == "false" || text == "0" ? Words("0") : std::nullopt;
  });
  for (const std::string_view flag : {"no_cuda", "use_cpu"}) {
    config.alias(flag, "run.device", when_on("cpu"));
  }
  for (const char* name : {"eval_strategy", "evaluation_strategy"}) {
    config.alias(name, "train.validate_every", strategy(name));
  }
  config.alias("save_strategy", "checkpoint.every", strategy("save_strategy"));
  config.alias("warmup_steps", "schedule.warmup_steps", [](std::string_view text) {
    return is_part_of_run(text) ? std::nullopt : unless_auto(text);
  });
  config.alias("warmup_steps", "schedule.warmup_ratio", [](std::string_view text) {
    return is_part_of_run(text) ? Words(std::string(text)) : std::nullopt;
  });
  config.alias("validation_split_percentage", "data.validation_fraction", percent);
  config.alias("lr_scheduler_type", "schedule.min_lr_ratio", min_lr_ratio);
  config.alias("scheduler.type", "schedule.min_lr_ratio", min_lr_ratio);
  config.alias("ddp_timeout", "comm.timeout",
               [](std::string_view seconds) { return Words(std::string(seconds) + "s"); });
  config.alias("gradient_checkpointing", "train.recompute", when_on("full"));
  config.alias("optim", "optimizer.kind", optimizer_kind);
  config.alias("optimizer.type", "optimizer.kind", optimizer_kind);
  config.alias("optimizer.params.betas", "optimizer.beta1", nth_of_list(0));
  config.alias("optimizer.params.betas", "optimizer.beta2", nth_of_list(1));
  config.alias("lr_scheduler_type", "schedule.decay", decay);
  config.alias("scheduler.type", "schedule.decay", decay);
  constexpr std::string_view kOptimizerDevice = "zero_optimization.offload_optimizer.device";
  config.alias(kOptimizerDevice, "offload.optimizer", tier);
  config.alias(kOptimizerDevice, "offload.gradients", tier_of_gradients);
  config.alias("zero_optimization.offload_param.device", "offload.parameters", tier);
  // ZeRO++
  config.alias("zero_optimization.zero_quantized_weights", "parallel.quantized_weights",
               when_on("int8"));
  config.alias("zero_optimization.zero_quantized_gradients", "parallel.quantized_gradients",
               when_on("int4"));
  config.alias("zero_optimization.zero_hpz_partition_size", "parallel.secondary_partition",
               keeps_secondary);
  config.alias("activation_checkpointing.cpu_checkpointing", "offload.activations",
               when_on("host"));
  config.alias("communication_data_type", "train.gradient_dtype", gradients_in);
  config.alias("data_types.grad_accum_dtype", "train.gradient_dtype", gradients_in);
  config.alias("fp16.initial_scale_power", "loss_scale.initial", power_of_two);
  familiar::accept_nanogpt_names(config);
}

}  // namespace lockstep::train
