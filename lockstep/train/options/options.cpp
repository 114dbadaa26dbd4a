#include "lockstep/train/options/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/system/cpu_set.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kGradientNames[] = {"auto", "compute", "f32"};
constexpr std::string_view kRecomputeNames[] = {"none", "selective", "full", "auto"};
constexpr std::string_view kTieNames[] = {"auto", "true", "false"};
constexpr std::string_view kScalingNames[] = {"none", "linear", "llama3", "longrope"};
constexpr std::string_view kActivationNames[] = {"auto", "gelu_tanh", "gelu", "relu"};
constexpr std::string_view kFamilyNames[] = {
    "gpt2",   "llama", "bert",    "mixtral",         "qwen3",  "phi3",  "gpt-neox",
    "gemma2", "t5",    "t5-v1.1", "encoder-decoder", "linear", "custom"};

// The names of an enumeration whose values are 0, 1, ... in this order.
template <class Enum, std::size_t N>
std::vector<std::string_view> names_of(const Enum (&all)[N]) {
  std::vector<std::string_view> names;
  for (const Enum one : all) names.push_back(plan::name(one));
  return names;
}

std::string known_models() {
  std::vector<std::string_view> names;
  for (const plan::ModelShape& model : plan::known_models()) names.push_back(model.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void bind(Config& config, ModelChoice& model) {
  config.bind("model.name", model.name, "A model by name, like gpt2-124m.");
  config.bind("model.family", model.family, kFamilyNames,
              "The family of a model that is described by its sizes.");
  const auto size = [&](std::string_view key, int& field, std::string_view doc) {
    config.bind(key, field, doc, {.min = 0});
  };
  config.bind("model.layers", model.layers, "The number of layers.",
              {.min = 0, .max = static_cast<int>(nn::kMostLayers)});
  size("model.hidden", model.hidden, "The hidden size.");
  size("model.heads", model.heads, "Attention heads.");
  size("model.kv_heads", model.kv_heads, "Key/value heads; 0: as many as heads.");
  size("model.head_size", model.head_size,
       "The width of a head, in llama, mixtral, qwen3, phi3, gemma2, t5 and t5-v1.1; 0: the hidden "
       "size divided by the heads.");
  size("model.feed_forward", model.feed_forward,
       "The feed-forward width; 0: 4 times the hidden size, in llama about 8/3.");
  size("model.vocabulary", model.vocabulary,
       "The vocabulary size; 0: that of the data, or the family's.");
  size("model.positions", model.positions,
       "The longest sequence; 0: train.seq_len if set, else the family's.");
  size("model.features", model.features,
       "Inputs of an item, in the linear family; 0: as many as the data has.");
  config
      .bind(
          "model.norm_epsilon", model.norm_epsilon,
          "What norms add to the variance; 0: 1e-6 in llama, qwen3, gemma2, t5 and t5-v1.1, 1e-12 "
          "in bert, else 1e-5.",
          {.min = 0, .max = 1})
      .formerly("model.epsilon");
  config
      .bind("model.rope_theta", model.rope_theta,
            "The base of rotary positions, in llama, mixtral, qwen3, phi3, gemma2 and gpt-neox.",
            {.min = 1})
      .formerly("model.theta");
  config.bind("model.rope_scaling", model.rope_scaling, kScalingNames,
              "How rotary positions are slowed down for long contexts: none, linear (all by "
              "model.rope_factor), llama3 (the slow ones) or longrope (each by a factor of its "
              "own, as in Phi-3).");
  config.bind("model.rope_factor", model.rope.factor,
              "By how much model.rope_scaling slows positions down.", {.min = 1});
  config.bind("model.rope_original_positions", model.rope.original_positions,
              "The longest sequence before the scaling of llama3 or longrope.", {.min = 1});
  config.bind("model.rope_low_freq_factor", model.rope.low_turns,
              "Below that many turns in the original positions, llama3 slows a pair down fully.",
              {.min = 0});
  config.bind(
      "model.rope_high_freq_factor", model.rope.high_turns,
      "Above that many turns in the original positions, llama3 slows a pair down not at all.",
      {.min = 0});
  config.bind("model.rope_short_factors", model.rope_short_factors,
              "By how much longrope slows down each pair of a head in sequences of up to "
              "model.rope_original_positions.",
              {.min = 1e-6});
  config.bind("model.rope_long_factors", model.rope_long_factors, "The same in longer sequences.",
              {.min = 1e-6});
  config.bind("model.rope_attention_factor", model.rope_attention_factor,
              "What longrope multiplies turned queries and keys by.", {.min = 1e-6});
  config.bind("model.rotary_share", model.rotary_share,
              "The share of every head that turns with its position, in gpt-neox and phi3; 0: a "
              "quarter in gpt-neox, all in phi3.",
              {.min = 0, .max = 1});
  size("model.window", model.window,
       "How many tokens attention sees, its own and those before, in llama, mixtral, qwen3 and "
       "phi3, and in every second layer of gemma2; 0: all.");
  size("model.unwindowed_layers", model.unwindowed_layers,
       "The first layers, whose attention sees all tokens in spite of model.window (as in Qwen2).");
  config.bind("model.attention_softcap", model.attention_softcap,
              "The soft cap c of attention's scores, c tanh(score / c), in gemma2; 0: none.",
              {.min = 0, .max = 1e6});
  config.bind("model.logit_softcap", model.logit_softcap,
              "The soft cap of the logits, in gemma2; 0: none.", {.min = 0, .max = 1e6});
  size("model.query_pre_attn_scalar", model.query_pre_attn_scalar,
       "Attention's scores are divided by the root of it, in gemma2; 0: the width of a head.");
  size("model.decoder_layers", model.decoder_layers,
       "Layers of the decoder, in t5 and t5-v1.1; 0: as many as model.layers.");
  size("model.relative_buckets", model.relative_buckets,
       "Biases by distance that every head of attention learns, in t5 and t5-v1.1; 0: 32.");
  size("model.relative_distance", model.relative_distance,
       "The distance from which on the farthest bias is used, in t5 and t5-v1.1; 0: 128.");
  config.bind("model.activation", model.activation, kActivationNames,
              "The activation of feed-forward networks, in gpt2 and gpt-neox: gelu_tanh, gelu "
              "(exact) or relu; auto: gelu_tanh in gpt2, gelu in gpt-neox.");
  config.bind("model.parallel_residual", model.parallel_residual,
              "Whether attention and feed-forward of a layer both read its input, in gpt-neox; "
              "false: one after the other.");
  config.bind("model.qkv_bias", model.qkv_bias,
              "Whether queries, keys and values have biases, in llama (as in Qwen2).");
  size("model.experts", model.experts, "Experts of a layer, in mixtral; 0: 8.");
  size("model.experts_per_token", model.experts_per_token,
       "Experts that every token goes to, in mixtral; 0: 2.");
  config.bind("model.router_loss", model.router_loss,
              "The coefficient of the loss that balances the experts, in mixtral; 0: none.",
              {.min = 0});
  config.bind("model.dropout", model.dropout,
              "The dropout probability of embeddings, attention and residual branches.",
              {.min = 0, .max = 0.99});
  config
      .bind("model.tie_word_embeddings", model.tie_word_embeddings, kTieNames,
            "Whether the output layer shares its weights with the token embedding; auto: true in "
            "gpt2, gemma2, t5, bert and the encoder-decoder, else false.")
      .formerly("model.logits", renamed_values({{"tied", "true"}, {"own", "false"}}));
}

bool describes_sizes(const ModelChoice& model) {
  for (const int size :
       {model.layers, model.hidden, model.heads, model.kv_heads, model.head_size,
        model.feed_forward, model.vocabulary, model.positions, model.features, model.experts,
        model.experts_per_token, model.window, model.query_pre_attn_scalar, model.decoder_layers,
        model.relative_buckets, model.relative_distance}) {
    if (size > 0) return true;
  }
  return false;
}

plan::Count or_usual(int chosen, plan::Count usual) {
  return chosen > 0 ? static_cast<plan::Count>(chosen) : usual;
}

plan::ModelShape with_logits(plan::ModelShape shape, TieChoice tie) {
  const bool has_choice = shape.family != plan::Family::kBert;
  if (tie == TieChoice::kUntied && !has_choice) {
    fail(ErrorCode::kInvalidArgument,
         "model.tie_word_embeddings = \"false\" does not go with model.family = \"bert\", whose "
         "output layer always shares the token embedding. Leave it out");
  }
  if (tie != TieChoice::kAuto && has_choice) {
    shape.head = tie == TieChoice::kTied ? plan::Head::kTied : plan::Head::kOwn;
  }
  return shape;
}

constexpr int kUsualSequence = 128;  // tokens

// Elements of a tensor that a step works with, so that bytes can be counted in 64 bits.
constexpr plan::Count kMostElements = plan::Count{1} << 56;

// Throws Error(kInvalidArgument) for a micro-batch with a tensor of more than kMostElements
// elements.
void check_countable(std::int64_t sequences, std::int64_t tokens, plan::Count width) {
  const auto is_too_much = [&] {
    plan::Count all = static_cast<plan::Count>(sequences);
    return __builtin_mul_overflow(all, static_cast<plan::Count>(tokens), &all) ||
           __builtin_mul_overflow(all, width, &all) || all > kMostElements;
  };
  if (!is_too_much()) return;
  fail(ErrorCode::kInvalidArgument,
       "a micro-batch of {} sequences of {} tokens has a tensor of width {} in this model, with "
       "too many elements to count; check train.micro_batch_size, train.global_batch_size, "
       "train.seq_len and the sizes of the model: one may have too many digits",
       sequences, tokens, width);
}

// The widest row of a tensor that a block makes.
plan::Count widest(const plan::ModelShape& shape, std::int64_t tokens) {
  const plan::Count routed = std::max<plan::Count>(1, shape.experts_per_token);
  return std::max({shape.vocabulary, plan::product({routed, shape.hidden}),
                   plan::product({routed, shape.feed_forward}),
                   plan::product({shape.heads, static_cast<plan::Count>(tokens)})});
}

// Tokens of a sequence.
std::int64_t sequence_of(const TrainOptions& options) {
  if (family_of(options) == ModelFamily::kLinear) return 1;
  if (!has_shape(options)) {
    const int longest = options.model.positions;
    const int sequence = options.batch.sequence;
    if (longest > 0 && sequence > longest) {
      fail(ErrorCode::kInvalidArgument, "train.seq_len = {} is longer than model.positions = {}",
           sequence, longest);
    }
    return sequence > 0 ? sequence : longest > 0 ? longest : kUsualSequence;
  }
  const plan::ModelShape shape = shape_of(options);
  const plan::Count sequence = or_usual(options.batch.sequence, shape.positions);
  if (shape.learns_positions() && sequence > shape.positions) {
    fail(ErrorCode::kInvalidArgument,
         "train.seq_len = {} is longer than the {} positions that {} has", sequence,
         shape.positions, shape.name);
  }
  return static_cast<std::int64_t>(sequence);
}

}  // namespace

std::string_view name(RecomputeChoice recompute) {
  return kRecomputeNames[static_cast<std::size_t>(recompute)];
}

std::string_view name(GradientChoice gradients) {
  return kGradientNames[static_cast<std::size_t>(gradients)];
}

void bind(Config& config, TrainOptions& options) {
  bind(config, options.model);
  config
      .bind("train.seq_len", options.batch.sequence,
            "Tokens of a sequence; 0: as many as the model has positions.", {.min = 0})
      .formerly("train.seq");
  config
      .bind("train.global_batch_size", options.batch.sequences,
            "Sequences of a step, all workers together; 0: train.micro_batch_size * "
            "train.gradient_accumulation_steps * workers.",
            {.min = 0})
      .formerly("train.batch");
  config
      .bind("train.micro_batch_size", options.batch.micro,
            "Sequences that a worker computes at once; 0: as train.global_batch_size allows.",
            {.min = 0})
      .formerly("train.micro_batch");
  config
      .bind("train.gradient_accumulation_steps", options.batch.accumulation,
            "Micro-batches whose gradients a worker accumulates for one step; 0: as "
            "train.global_batch_size needs.",
            {.min = 0})
      .formerly("train.accumulation");
  config.bind("train.precision", options.precision, names_of(plan::kAllPrecisions),
              "What is computed in; below f32 a master copy of the parameters is kept in f32. fp8 "
              "is bf16 with the linear layers of blocks in 8 bits, on a GPU that has them.");
  config
      .bind("train.gradient_dtype", options.gradient_dtype, kGradientNames,
            "The type of gradients: that of train.precision (compute), f32, or auto: f32 where "
            "several micro-batches are accumulated, else compute.")
      .formerly("train.gradients");
  config.bind("train.expert_capacity", options.expert_capacity,
              "With a mixture of experts, how many rows an expert takes of a micro-batch, relative "
              "to those that it would get if tokens chose all experts equally often; more are "
              "dropped, and the tokens go on without this expert. It bounds memory with "
              "parallel.expert. 0: nothing is dropped. Generation drops nothing.",
              {.min = 0});
  config.bind("train.recompute", options.recompute, kRecomputeNames,
              "What backward recomputes instead of keeping it; auto: as little as fits into "
              "memory.limit, or into the free memory, chosen per block.");
  parallel::bind(config, options.parallel);
  parallel::bind(config, options.offload);
  bind(config, options.survive);
  optim::bind(config, options.optimizer);
  optim::bind(config, options.schedule);
  optim::bind(config, options.loss_scale);
  bind_device(config, options);
  config.bind("train.threads", options.threads,
              "Threads that compute; 0: one for each allowed core.", {.min = 0, .max = 4096});
  config.bind("train.seed", options.seed,
              "Seed of the initial parameters, the data order and dropout.", {.min = 0});
  config.bind(
      "memory.limit", options.memory_limit,
      "The most bytes that a run may need; a larger one is refused before it starts. 0: no limit.");
  config.bind("memory.device_limit", options.device_limit,
              "The most bytes that a worker may use on its device (offload.* moves bytes "
              "elsewhere); 0: no limit.");
  config.bind(
      "memory.auto", options.memory_auto,
      "Chooses parallel.zero, train.recompute, train.micro_batch_size and offload.*, those of them "
      "that are not set, so that the run fits into memory.limit, or into what the machine and its "
      "control groups (containers, batch jobs) have free, and into memory.device_limit, and loses "
      "least time; files only where nothing else fits.");
  config.bind("debug.slow_rank", options.slow_rank,
              "A rank that computes more slowly, to study stragglers; -1: none.", {.min = -1});
  config.bind("debug.slow_factor", options.slow_factor,
              "How many times as long debug.slow_rank takes.", {.min = 1, .max = 1000});
}

std::string_view name(ModelFamily family) { return kFamilyNames[static_cast<std::size_t>(family)]; }

ModelFamily model_family(plan::Family family) {
  const std::string_view wanted = plan::name(family);
  const auto at = std::ranges::find(kFamilyNames, wanted);
  return static_cast<ModelFamily>(at - std::begin(kFamilyNames));
}

ModelFamily family_of(const TrainOptions& options) {
  if (options.model.name.empty()) return options.model.family;
  return model_family(plan::find_model(options.model.name).family);
}

void set_custom_model(TrainOptions& options, ModelMaker make) {
  options.model.family = ModelFamily::kCustom;
  options.make_model = std::move(make);
}

bool describes_model(const ModelChoice& model) {
  return !model.name.empty() || model.layers > 0 || model.hidden > 0;
}

bool translates(const TrainOptions& options) {
  const plan::FamilyParts* const parts = parts_of(options);
  return family_of(options) == ModelFamily::kEncoderDecoder ||
         (parts != nullptr && parts->encoder_decoder);
}

bool has_shape(const TrainOptions& options) {
  return family_of(options) < ModelFamily::kEncoderDecoder;
}

const plan::FamilyParts* parts_of(const TrainOptions& options) {
  if (!has_shape(options)) return nullptr;
  return &plan::parts_of(plan::family_from_name(name(family_of(options))));
}

plan::ModelShape shape_of(const TrainOptions& options) {
  const ModelChoice& choice = options.model;
  const bool sized = describes_sizes(choice);
  if (!choice.name.empty() && sized) {
    fail(ErrorCode::kInvalidArgument,
         "model.name = \"{}\" already has its sizes; leave it out to describe a model by "
         "model.layers, model.hidden, model.heads and so on",
         choice.name);
  }
  if (!choice.name.empty()) {
    return with_logits(nn::trainable(plan::find_model(choice.name)), choice.tie_word_embeddings);
  }
  if (!has_shape(options)) {
    fail(ErrorCode::kUnsupported,
         "this is for models of {}, whose sizes a formula knows; the model is of {}, which "
         "`lockstep "
         "plan model.family={} ...` plans and `lockstep train` trains",
         fmt::join(names_of(plan::kAllFamilies), ", "), name(choice.family), name(choice.family));
  }
  if (choice.layers == 0 || choice.hidden == 0 || choice.heads == 0) {
    fail(ErrorCode::kInvalidArgument,
         "no model is given: set model.name to one of {}; or set model.layers, model.hidden and "
         "model.heads",
         known_models());
  }
  const plan::Family family = plan::family_from_name(name(choice.family));
  plan::ModelShape shape = plan::usual_shape(family);
  shape.name = fmt::format("{} of {} x {}", name(choice.family), choice.layers, choice.hidden);
  shape.layers = or_usual(choice.layers, 0);
  shape.hidden = or_usual(choice.hidden, 0);
  shape.heads = or_usual(choice.heads, 0);
  shape.kv_heads = or_usual(choice.kv_heads, shape.heads);
  shape.head_size = or_usual(choice.head_size, 0);
  shape.qkv_biases = choice.qkv_bias;
  shape.window = or_usual(choice.window, 0);
  if (shape.window > 0) shape.unwindowed_layers = or_usual(choice.unwindowed_layers, 0);
  shape.query_pre_attn_scalar = or_usual(choice.query_pre_attn_scalar, 0);
  if (shape.parts().encoder_decoder) {
    shape.decoder_layers = or_usual(choice.decoder_layers, shape.layers);
  }
  if (shape.parts().relative_bias) {
    shape.relative_buckets = or_usual(choice.relative_buckets, shape.relative_buckets);
    shape.relative_distance = or_usual(choice.relative_distance, shape.relative_distance);
  }
  shape.feed_forward =
      or_usual(choice.feed_forward, plan::usual_feed_forward(family, shape.hidden));
  if (shape.parts().experts) {
    shape.experts = or_usual(choice.experts, shape.experts);
    shape.experts_per_token = or_usual(choice.experts_per_token, shape.experts_per_token);
  }
  shape.vocabulary = or_usual(choice.vocabulary, shape.vocabulary);
  shape.positions = or_usual(choice.positions, or_usual(options.batch.sequence, shape.positions));
  shape = with_logits(nn::trainable(shape), choice.tie_word_embeddings);
  nn::check_size(shape);
  return shape;
}

nn::Setup setup_of(const TrainOptions& options) {
  const BatchChoice batch = solved(options.batch);
  const DType dtype = dtype_of(options.precision);
  const bool wide = options.gradient_dtype == GradientChoice::kF32 ||
                    options.parallel.reduction == parallel::Reduction::kTree ||
                    (options.gradient_dtype == GradientChoice::kAuto &&
                     (most_backwards(options) > 1 || options.batch.most_workers > 0));
  const std::int64_t sequence = sequence_of(options);
  if (has_shape(options)) {
    check_countable(batch.micro, sequence, widest(shape_of(options), sequence));
  }
  const bool recomputes_auto = options.recompute == RecomputeChoice::kAuto;
  const nn::ContextGroup context = context_of(options, sequence);
  const std::int64_t own = sequence / context.size;
  return {.shape = {.batch = batch.micro,
                    .sequence = own,
                    .source_sequence = translates(options) ? own : 0},
          .dtype = dtype,
          .gradient = wide ? DType::kF32 : dtype,
          .fp8 = options.precision == plan::Precision::kFp8,
          .context = context,
          .expert_capacity = options.expert_capacity,
          .slices = token_slices_of(options),
          .recompute = recomputes_auto ? plan::Recompute::kNone
                                       : static_cast<plan::Recompute>(options.recompute),
          .recompute_of_blocks =
              recomputes_auto ? options.recompute_of_blocks : std::vector<plan::Recompute>()};
}

nn::OptimizerState optimizer_state_of(const TrainOptions& options) {
  if (optim::has_moments(options.optimizer)) return nn::OptimizerState::kMoments;
  return optim::has_velocity(options.optimizer) ? nn::OptimizerState::kVelocity
                                                : nn::OptimizerState::kNone;
}

int threads_of(const TrainOptions& options) {
  return options.threads > 0 ? options.threads : CpuSet::of_this_thread().count();
}

parallel::WorkerPosition worker_position_of(const TrainOptions& options, int worker) {
  const BatchChoice batch = solved(options.batch);
  return {
      .workers = batch.workers, .worker = worker, .most_micro_batches = most_backwards(options)};
}

DType dtype_of(plan::Precision precision) {
  switch (precision) {
    case plan::Precision::kBf16:
    case plan::Precision::kFp8:
      return DType::kBF16;
    case plan::Precision::kF16:
      return DType::kF16;
    case plan::Precision::kF32:
      break;
  }
  return DType::kF32;
}

}  // namespace lockstep::train
