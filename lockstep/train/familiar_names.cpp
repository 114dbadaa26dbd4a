#include "lockstep/train/familiar_names.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

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
    {"max_steps", "train.steps"},
    {"per_device_train_batch_size", "train.micro_batch"},
    {"learning_rate", "schedule.rate"},
    {"warmup_steps", "schedule.warmup"},
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
    {"fp16.loss_scale_window", "loss_scale.patience"},
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
  if (kind == "warmupcosinelr") return "cosine";
  return kind;
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

// DeepSpeed gives the exponent of 2; 0 is what it takes by itself.
Words power_of_two(std::string_view text) {
  if (text == "auto") return std::nullopt;
  const int exponent = std::atoi(std::string(text).c_str());
  return std::to_string(exponent > 0 && exponent < 63 ? 1ull << exponent : 65536ull);
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
  config.alias("gradient_checkpointing", "train.recompute", when_on("full"));
  config.alias("optim", "optimizer.kind", optimizer_kind);
  config.alias("optimizer.type", "optimizer.kind", optimizer_kind);
  config.alias("optimizer.params.betas", "optimizer.beta1", nth_of_list(0));
  config.alias("optimizer.params.betas", "optimizer.beta2", nth_of_list(1));
  config.alias("lr_scheduler_type", "schedule.decline", decline);
  config.alias("scheduler.type", "schedule.decline", decline);
  config.alias("fp16.initial_scale_power", "loss_scale.initial", power_of_two);
}

}  // namespace lockstep::train
