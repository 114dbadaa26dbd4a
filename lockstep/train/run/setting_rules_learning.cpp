// Which keys of data, model and optimizer a run reads.
#include <fmt/format.h>

#include "lockstep/train/run/setting_rules.h"

namespace lockstep::train::rules {
namespace {

// data.*

std::string tokenizer(const Facts& facts) {
  return when(!facts.options.data.table.empty(), "data.table has numbers, not text");
}

std::string field(const Facts& facts) {
  const data::DataOptions& data = facts.options.data;
  return when(data.text.empty() && data.validation_text.empty(),
              "it is for JSON lines of data.text or data.validation_text");
}

std::string bpe_vocabulary(const Facts& facts) {
  return when(facts.options.data.tokenizer != "bpe",
              "it is for data.tokenizer = \"bpe\", which is learned from the text");
}

std::string validation_fraction(const Facts& facts) {
  const data::DataOptions& data = facts.options.data;
  return when(!data.validation_text.empty() || !data.validation_tokens.empty(),
              "the validation data has a file of its own");
}

std::string mask_fraction(const Facts& facts) {
  return when(family_of(facts.options.train) != ModelFamily::kBert,
              "only model.family = \"bert\" is asked for masked tokens");
}

std::string without_validation(const Facts& facts) {
  const data::DataOptions& data = facts.options.data;
  return when(data.validation_fraction == 0 && data.validation_text.empty() &&
                  data.validation_tokens.empty(),
              "with data.validation_fraction = 0 there is no validation data");
}

std::string early_stopping_delta(const Facts& facts) {
  return when(facts.options.early_stopping == 0, "with train.early_stopping = 0 no run ends early");
}

// model.* and train.*

bool is_family(const Facts& facts, ModelFamily family) {
  return family_of(facts.options.train) == family;
}

std::string family(const Facts& facts) {
  const std::string& model = facts.options.train.model.name;
  return when(!model.empty(), fmt::format("model.name = \"{}\" has its family already", model));
}

std::string of_transformers(const Facts& facts) {
  return when(is_family(facts, ModelFamily::kLinear),
              "a linear model has inputs (model.features) and nothing else");
}

std::string of_single_stacks(const Facts& facts) {
  return is_family(facts, ModelFamily::kEncoderDecoder)
             ? "an encoder-decoder has as many key/value heads as heads, and one table for all "
               "embeddings and logits"
             : of_transformers(facts);
}

// It may read any size.
bool is_custom(const Facts& facts) { return is_family(facts, ModelFamily::kCustom); }

std::string features(const Facts& facts) {
  if (is_custom(facts)) return "";
  return when(!is_family(facts, ModelFamily::kLinear),
              "only model.family = \"linear\" has features");
}

// That its family has a part, or that it may read any setting.
bool has_part(const Facts& facts, bool plan::FamilyParts::*part) {
  const plan::FamilyParts* parts = parts_of(facts.options.train);
  return is_custom(facts) || (parts != nullptr && parts->*part);
}

std::string of_part(const Facts& facts, bool plan::FamilyParts::*part, std::string_view what) {
  return when(!has_part(facts, part),
              fmt::format("only models of family {} have {}", plan::families_with(part), what));
}

std::string of_rotary(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::rotary, "rotary positions");
}

std::string rotary_share(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::partly_rotary, "rotary positions of a part of a head");
}

std::string head_size(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::head_sizes, "heads of another width");
}

std::string window(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::windows, "windows of attention");
}

std::string unwindowed_layers(const Facts& facts) {
  if (std::string why = window(facts); !why.empty()) return why;
  if (facts.options.train.model.window == 0 && !is_custom(facts)) {
    return "with model.window = 0 no layer has a window";
  }
  return when(!is_custom(facts) && has_part(facts, &plan::FamilyParts::alternating),
              "in gemma2 every second layer has a window");
}

std::string of_soft_caps(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::soft_caps, "soft caps and a scale of queries");
}

std::string of_relative_bias(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::relative_bias, "biases by distance");
}

std::string decoder_layers(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::encoder_decoder,
                 "a decoder with a number of layers of its own");
}

std::string activation(const Facts& facts) {
  return when(!is_family(facts, ModelFamily::kGpt2) && !is_family(facts, ModelFamily::kGptNeox) &&
                  !is_custom(facts),
              "only models of family gpt2 and gpt-neox have an activation to choose");
}

std::string parallel_residual(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::parallel, "parallel residuals");
}

std::string qkv_bias(const Facts& facts) {
  return when(!is_family(facts, ModelFamily::kLlama) && !is_custom(facts),
              "it is for model.family = \"llama\"");
}

std::string of_scaling(const Facts& facts) {
  const RopeScaling scaling = facts.options.train.model.rope_scaling;
  if (scaling == RopeScaling::kLongRope) return "longrope has a factor for every pair";
  return when(scaling == RopeScaling::kNone,
              "with model.rope_scaling = \"none\" nothing is scaled");
}

std::string of_original_positions(const Facts& facts) {
  const RopeScaling scaling = facts.options.train.model.rope_scaling;
  return when(scaling != RopeScaling::kLlama3 && scaling != RopeScaling::kLongRope,
              "it is for model.rope_scaling = \"llama3\" and \"longrope\"");
}

std::string of_longrope(const Facts& facts) {
  return when(facts.options.train.model.rope_scaling != RopeScaling::kLongRope,
              "it is for model.rope_scaling = \"longrope\"");
}

std::string of_llama3_scaling(const Facts& facts) {
  return when(facts.options.train.model.rope_scaling != RopeScaling::kLlama3,
              "it is for model.rope_scaling = \"llama3\"");
}

std::string of_experts(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::experts, "experts");
}

std::string gradient_dtype(const Facts& facts) {
  if (parallel_of(facts).reduction == parallel::Reduction::kTree) {
    return "with parallel.reduction = \"tree\" gradients are f32";
  }
  return when(facts.options.train.precision == plan::Precision::kF32,
              "with train.precision = \"f32\" gradients are f32");
}

std::string steps(const Facts& facts) {
  return when(facts.options.epochs > 0,
              fmt::format("train.epochs = {} says how long the run is", facts.options.epochs));
}

std::string trace_steps(const Facts& facts) {
  return when(!facts.options.trace, "it is for train.trace = true");
}

std::string of_live_page(const Facts& facts) {
  return when(facts.options.live.port == 0, "with live.port = 0 there is no live page");
}

std::string of_samples(const Facts& facts) {
  return when(facts.options.sample.every == 0, "with sample.every = 0 there are no samples");
}

std::string slow_factor(const Facts& facts) {
  return when(facts.options.train.slow_rank < 0, "with debug.slow_rank = -1 no rank is slow");
}

// optimizer.*, schedule.*, loss_scale.*

std::string of_adam(const Facts& facts) {
  return when(facts.options.train.optimizer.kind == optim::OptimizerKind::kSgd,
              "optimizer.kind = \"sgd\" has no moments; it is for adam and adamw");
}

std::string momentum(const Facts& facts) {
  return when(facts.options.train.optimizer.kind != optim::OptimizerKind::kSgd,
              "it is for optimizer.kind = \"sgd\"; Adam has optimizer.beta1");
}

std::string warmup_ratio(const Facts& facts) {
  return when(facts.config.given("schedule.warmup_steps").has_value(),
              "schedule.warmup_steps says how long the warm-up is");
}

std::string of_decay(const Facts& facts) {
  return when(facts.options.train.schedule.decay == optim::LearningRateDecay::kConstant,
              "with schedule.decay = \"constant\" the learning rate does not decay");
}

std::string min_lr_ratio(const Facts& facts) {
  const double minimum = facts.options.train.schedule.min_lr;
  if (minimum > 0) return fmt::format("schedule.min_lr = {} is the minimum", minimum);
  return of_decay(facts);
}

std::string of_f16(const Facts& facts) {
  return when(facts.options.train.precision != plan::Precision::kF16,
              "only train.precision = \"f16\" scales the loss");
}

constexpr SettingRule kLearningRules[] = {
    {"data.field", field},
    {"data.tokenizer", tokenizer},
    {"data.bpe_vocabulary", bpe_vocabulary},
    {"data.validation_fraction", validation_fraction},
    {"data.mask_fraction", mask_fraction},
    {"model.family", family},
    {"model.layers", of_transformers},
    {"model.hidden", of_transformers},
    {"model.heads", of_transformers},
    {"model.kv_heads", of_single_stacks},
    {"model.feed_forward", of_transformers},
    {"model.vocabulary", of_transformers},
    {"model.positions", of_transformers},
    {"model.features", features},
    {"model.norm_epsilon", of_transformers},
    {"model.head_size", head_size},
    {"model.qkv_bias", qkv_bias},
    {"model.rotary_share", rotary_share},
    {"model.window", window},
    {"model.unwindowed_layers", unwindowed_layers},
    {"model.attention_softcap", of_soft_caps},
    {"model.logit_softcap", of_soft_caps},
    {"model.query_pre_attn_scalar", of_soft_caps},
    {"model.decoder_layers", decoder_layers},
    {"model.relative_buckets", of_relative_bias},
    {"model.relative_distance", of_relative_bias},
    {"model.activation", activation},
    {"model.parallel_residual", parallel_residual},
    {"model.rope_theta", of_rotary},
    {"model.rope_scaling", of_rotary},
    {"model.rope_factor", of_scaling},
    {"model.rope_original_positions", of_original_positions},
    {"model.rope_short_factors", of_longrope},
    {"model.rope_long_factors", of_longrope},
    {"model.rope_attention_factor", of_longrope},
    {"model.rope_low_freq_factor", of_llama3_scaling},
    {"model.rope_high_freq_factor", of_llama3_scaling},
    {"model.experts", of_experts},
    {"model.experts_per_token", of_experts},
    {"model.router_loss", of_experts},
    {"model.dropout", of_transformers},
    {"model.tie_word_embeddings", of_single_stacks},
    {"train.seq_len", of_transformers},
    {"train.gradient_dtype", gradient_dtype},
    {"train.expert_capacity", of_experts},
    {"train.steps", steps},
    {"train.validate_every", without_validation},
    {"train.validate_batches", without_validation},
    {"train.early_stopping", without_validation},
    {"train.early_stopping_delta", early_stopping_delta},
    {"checkpoint.keep_best", without_validation},
    {"train.trace_steps", trace_steps},
    {"sample.tokens", of_samples},
    {"sample.temperature", of_samples},
    {"sample.prompt", of_samples},
    {"live.address", of_live_page},
    {"live.token_file", of_live_page},
    {"debug.slow_factor", slow_factor},
    {"optimizer.beta1", of_adam},
    {"optimizer.beta2", of_adam},
    {"optimizer.epsilon", of_adam},
    {"optimizer.momentum", momentum},
    {"schedule.warmup_ratio", warmup_ratio},
    {"schedule.stable_steps", of_decay},
    {"schedule.decay_steps", of_decay},
    {"schedule.min_lr_ratio", min_lr_ratio},
    {"schedule.min_lr", of_decay},
    {"loss_scale.initial", of_f16},
    {"loss_scale.growth_interval", of_f16},
    {"loss_scale.min", of_f16},
};

}  // namespace

std::span<const SettingRule> of_learning() { return kLearningRules; }

}  // namespace lockstep::train::rules
