#include "lockstep/nn/models/models.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"
#include "lockstep/nn/blocks/bert_layer.h"
#include "lockstep/nn/blocks/decoder_layer.h"
#include "lockstep/nn/blocks/decoder_start.h"
#include "lockstep/nn/blocks/divided_layer.h"
#include "lockstep/nn/blocks/embedding.h"
#include "lockstep/nn/blocks/embedding_norm.h"
#include "lockstep/nn/blocks/language_head.h"
#include "lockstep/nn/blocks/linear_regression.h"
#include "lockstep/nn/blocks/masked_language_head.h"
#include "lockstep/nn/blocks/pre_norm_layer.h"
#include "lockstep/nn/blocks/sandwich_layer.h"
#include "lockstep/nn/models/t5.h"
#include "lockstep/plan/arithmetic.h"
#include "lockstep/plan/mesh/mesh.h"

namespace lockstep::nn {
namespace {

using plan::Family;
using plan::Head;
using plan::ModelShape;
using Blocks = std::vector<std::unique_ptr<Block>>;

constexpr double kStddev = 0.02;         // of GPT-2's, Llama's and BERT's weights at first
constexpr std::int64_t kTokenTypes = 2;  // BERT's two sentences
constexpr const char* kEmbedding = "embedding";
constexpr const char* kTokenTable = "embedding.tokens";

std::int64_t to_signed(plan::Count count) { return static_cast<std::int64_t>(count); }

NormOptions norm_of(const ModelShape& shape, const ModelOptions& options) {
  return {.kind = shape.parts().rms_norm ? ops::NormKind::kRms : ops::NormKind::kLayer,
          .epsilon = options.epsilon.value_or(usual_epsilon(shape.family)),
          .width = to_signed(shape.hidden),
          .bias = shape.biases,
          .tensor = options.tensor,
          .above_one = shape.parts().gains_above_one};
}

// GPT-2 begins with smaller weights where branches join the residual stream, so that its variance
// does not grow with the number of layers.
double joining_stddev(const ModelShape& shape) {
  if (shape.family != Family::kGpt2) return kStddev;
  return kStddev / std::sqrt(2.0 * static_cast<double>(shape.layers));
}

// Of layer number `layer`.
AttentionOptions attention_of(const ModelShape& shape, const ModelOptions& options,
                              plan::Count layer) {
  const plan::FamilyParts& parts = shape.parts();
  AttentionOptions attention = {
      .hidden = to_signed(shape.hidden),
      .heads = to_signed(shape.heads),
      .kv_heads = to_signed(shape.kv_heads),
      .head_width = to_signed(shape.head_width()),
      .causal = parts.causal,
      .biases = shape.biases,
      .qkv_biases = shape.qkv_biases,
      .dropout = options.dropout,
      .stddev = kStddev,
      .projection_stddev = joining_stddev(shape),
      .rotary = parts.rotary,
      .theta = options.theta,
      .scaling = options.scaling,
      .long_rope = options.long_rope,
      .window = to_signed(shape.window_of(layer)),
      .softcap = static_cast<float>(options.attention_softcap.value_or(parts.attention_softcap)),
      .scale_width = to_signed(shape.query_pre_attn_scalar),
      .side = Side::kTarget,
      .tensor = options.tensor};
  if (parts.rotary) attention.rotary_width = rotary_width(shape, options);
  if (options.long_rope) check_long_rope(*options.long_rope, attention.turned_width());
  if (parts.qk_norm) attention.qk_norm = norm_of(shape, options).epsilon;
  return attention;
}

MixtralLayerOptions mixtral_layer_of(const ModelShape& shape, const ModelOptions& options,
                                     plan::Count layer) {
  return {.norm = norm_of(shape, options),
          .attention = attention_of(shape, options, layer),
          .feed_forward = {.hidden = to_signed(shape.hidden),
                           .width = to_signed(shape.feed_forward),
                           .experts = to_signed(shape.experts),
                           .chosen = to_signed(shape.experts_per_token),
                           .router_loss = options.router_loss,
                           .stddev = kStddev,
                           .down_stddev = kStddev,
                           .tensor = options.tensor,
                           .group = options.experts},
          .dropout = options.dropout};
}

std::unique_ptr<Block> make_layer(std::string name, const ModelShape& shape,
                                  const ModelOptions& options, plan::Count number) {
  const plan::FamilyParts& parts = shape.parts();
  if (parts.experts) {
    return std::make_unique<MixtralLayer>(std::move(name),
                                          mixtral_layer_of(shape, options, number));
  }
  const NormOptions norm = norm_of(shape, options);
  const AttentionOptions attention = attention_of(shape, options, number);
  const bool parallel = options.parallel_residual.value_or(parts.parallel);
  if (parts.gated) {
    const LlamaLayerOptions layer = {
        .norm = norm,
        .attention = attention,
        .feed_forward = {.hidden = to_signed(shape.hidden),
                         .width = to_signed(shape.feed_forward),
                         .biases = shape.biases,
                         .stddev = kStddev,
                         .down_stddev = kStddev,
                         .tensor = options.tensor,
                         .gate = parts.gelu_gates ? ops::Gate::kGeluTanh : ops::Gate::kSilu},
        .dropout = options.dropout,
        .parallel_residual = parallel};
    if (parts.sandwich) return std::make_unique<SandwichLayer>(std::move(name), layer);
    return std::make_unique<LlamaLayer>(std::move(name), layer);
  }
  const LayerOptions layer = {
      .norm = norm,
      .attention = attention,
      .feed_forward = {.hidden = to_signed(shape.hidden),
                       .width = to_signed(shape.feed_forward),
                       .activation = options.activation.value_or(usual_activation(shape.family)),
                       .biases = shape.biases,
                       .stddev = kStddev,
                       .down_stddev = joining_stddev(shape),
                       .tensor = options.tensor},
      .dropout = options.dropout,
      .parallel_residual = parallel};
  if (shape.family == Family::kBert) return std::make_unique<BertLayer>(std::move(name), layer);
  return std::make_unique<Gpt2Layer>(std::move(name), layer);
}

void add_layer(const ModelShape& shape, const ModelOptions& options, plan::Count number,
               Blocks& blocks) {
  const std::string name = "layer." + std::to_string(number);
  if (options.experts.size == 1) return blocks.push_back(make_layer(name, shape, options, number));
  const MixtralLayerOptions layer = mixtral_layer_of(shape, options, number);
  blocks.push_back(std::make_unique<AttentionHalf>(name, layer));
  blocks.push_back(std::make_unique<ExpertsHalf>(name, layer));
}

// The experts whose tokens a model counts for its balancing loss; 0: it has none.
std::int64_t counted_experts(const ModelShape& shape, const ModelOptions& options) {
  return options.router_loss > 0 ? to_signed(shape.experts) : 0;
}

void add_embedding(const ModelShape& shape, const ModelOptions& options, Blocks& blocks) {
  const bool bert = shape.family == Family::kBert;
  const EmbeddingOptions embedding = {
      .vocabulary = to_signed(shape.vocabulary),
      .positions = shape.learns_positions() ? to_signed(shape.positions) : 0,
      .types = bert ? kTokenTypes : 0,
      .hidden = to_signed(shape.hidden),
      .stddev = kStddev,
      .dropout = bert ? 0 : options.dropout,
      .tied_to = {},
      .side = Side::kTarget,
      .tensor = options.tensor,
      .counted_experts = counted_experts(shape, options),
      .scale = shape.parts().scaled_embedding ? std::sqrt(static_cast<double>(shape.hidden)) : 1};
  blocks.push_back(std::make_unique<Embedding>(kEmbedding, embedding));
  if (!bert) return;
  blocks.push_back(
      std::make_unique<EmbeddingNorm>(kEmbedding, norm_of(shape, options), options.dropout));
}

std::unique_ptr<Block> make_head(const ModelShape& shape, const ModelOptions& options) {
  const NormOptions norm = norm_of(shape, options);
  const ClassifierOptions classifier = {
      .hidden = to_signed(shape.hidden),
      .classes = to_signed(shape.vocabulary),
      .tied_to = shape.head == Head::kOwn ? "" : kTokenTable,
      .bias = shape.head == Head::kMaskedLanguage,
      .stddev = kStddev,
      .tensor = options.tensor,
      .softcap = options.logit_softcap.value_or(shape.parts().logit_softcap)};
  const bool bert = shape.family == Family::kBert;
  if (bert && shape.head == Head::kMaskedLanguage) {
    const LinearOptions dense = {.in = to_signed(shape.hidden),
                                 .out = to_signed(shape.hidden),
                                 .bias = shape.biases,
                                 .stddev = kStddev};
    return std::make_unique<MaskedLanguageHead>("head", dense, norm, classifier);
  }
  if (!bert && (shape.head == Head::kTied || shape.head == Head::kOwn)) {
    return std::make_unique<LanguageHead>("head", norm, classifier,
                                          counted_experts(shape, options));
  }
  fail(ErrorCode::kUnsupported,
       "a model of family {} cannot be trained with the head '{}'; take {} instead",
       name(shape.family), name(shape.head), bert ? "mlm" : "tied or own");
}

void check_layers(std::int64_t layers) {
  if (layers >= 0 && layers <= kMostLayers) return;
  fail(ErrorCode::kInvalidArgument,
       "a model of {} layers is too deep: at most {} are supported; check the number", layers,
       kMostLayers);
}

void check_parameters(plan::Count parameters) {
  if (parameters <= kMostParameters) return;
  fail(ErrorCode::kInvalidArgument,
       "these sizes make a model of {} parameters, but at most {} are supported; check whether one "
       "of them has too many digits",
       format_count(parameters), format_count(kMostParameters));
}

// No less than there are: a vocabulary that is shared counts twice.
plan::Count parameters_at_most(const EncoderDecoderShape& shape) {
  const auto count = [](std::int64_t size) { return static_cast<plan::Count>(size); };
  const plan::Count hidden = count(shape.hidden);
  const plan::Count rows =
      plan::sum({count(shape.source_vocabulary), count(shape.target_vocabulary),
                 count(shape.source_positions), count(shape.target_positions)});
  // Two attentions and a feed-forward of two matrices, with their biases and norms.
  const plan::Count layer = plan::sum({plan::product({8, hidden, hidden}),
                                       plan::product({2, hidden, count(shape.feed_forward)}),
                                       plan::product({16, hidden}), count(shape.feed_forward)});
  const plan::Count layers = count(shape.encoder_layers + shape.decoder_layers);
  return plan::sum({plan::product({rows, hidden}), plan::product({layers, layer})});
}

}  // namespace

float usual_epsilon(Family family) {
  switch (family) {
    case Family::kLlama:
    case Family::kQwen3:
    case Family::kGemma2:
    case Family::kT5:
    case Family::kT5V11:
      return 1e-6f;
    case Family::kBert:
      return 1e-12f;
    default:
      return 1e-5f;
  }
}

ops::Activation usual_activation(Family family) {
  if (family == Family::kT5) return ops::Activation::kRelu;
  return family == Family::kGpt2 ? ops::Activation::kGeluTanh : ops::Activation::kGeluErf;
}

std::int64_t rotary_width(const ModelShape& shape, const ModelOptions& options) {
  const double share = options.rotary_share.value_or(shape.parts().rotary_share);
  const std::int64_t whole = to_signed(shape.head_width());
  // As transformers rounds.
  const auto width = static_cast<std::int64_t>(share * static_cast<double>(whole));
  if (width >= 2 && width <= whole && width % 2 == 0) return width;
  fail(ErrorCode::kInvalidArgument,
       "{} of heads of width {} are {} elements, but positions turn an even number of them; take "
       "model.rotary_share = {}",
       share, whole, width,
       static_cast<double>(std::clamp((width + 1) / 2 * 2, std::int64_t{2}, whole)) /
           static_cast<double>(whole));
}

void check_size(const ModelShape& shape) {
  plan::check(shape);
  check_layers(to_signed(shape.layers));
  check_layers(to_signed(shape.decoder_layers));
  check_parameters(plan::count_parameters(shape).total());
}

void check_tensor_group(std::int64_t heads, std::int64_t kv_heads, std::int64_t feed_forward,
                        std::int64_t vocabulary, int ranks) {
  const auto fits = [&](std::int64_t count) {
    return heads % count == 0 && kv_heads % count == 0 && feed_forward >= count &&
           vocabulary >= count;
  };
  if (fits(ranks)) return;
  std::vector<std::int64_t> possible;
  for (std::int64_t count = 1; count <= kv_heads; ++count) {
    if (fits(count)) possible.push_back(count);
  }
  fail(ErrorCode::kInvalidArgument,
       "{} ranks cannot divide a model of {} heads and {} key and value heads, which are divided "
       "evenly; take {} of them",
       ranks, heads, kv_heads, fmt::join(possible, ", "));
}

void check_expert_group(const ModelShape& shape, int ranks) {
  if (ranks == 1) return;
  if (!shape.has_experts()) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.expert = {} divides the experts of a mixture, which a model of family {} does "
         "not have; take model.family = \"mixtral\", or leave parallel.expert out",
         ranks, name(shape.family));
  }
  plan::check_limits({.expert = ranks}, {.experts = static_cast<int>(shape.experts)});
}

Model make_model(const ModelShape& shape, const ModelOptions& options) {
  check_size(shape);
  check_tensor_group(to_signed(shape.heads), to_signed(shape.kv_heads),
                     to_signed(shape.feed_forward), to_signed(shape.vocabulary),
                     options.tensor.size);
  check_expert_group(shape, options.experts.size);
  if (shape.parts().encoder_decoder) return make_t5(shape, options);
  Blocks blocks;
  add_embedding(shape, options, blocks);
  for (plan::Count i = 0; i < shape.layers; ++i) {
    add_layer(shape, options, i, blocks);
  }
  blocks.push_back(make_head(shape, options));
  return {shape.name, std::move(blocks)};
}

plan::ModelShape trainable(plan::ModelShape shape) {
  if (shape.head == Head::kPooler) {
    shape.head = shape.family == Family::kBert ? Head::kMaskedLanguage : Head::kTied;
  }
  return shape;
}

Model make_encoder_decoder(const EncoderDecoderShape& shape, const ModelOptions& options) {
  if (shape.heads < 1 || shape.hidden % shape.heads != 0) {
    fail(ErrorCode::kInvalidArgument,
         "a hidden size of {} cannot be split into {} heads of equal width; take a number of heads "
         "that divides it",
         shape.hidden, shape.heads);
  }
  if (shape.shared_vocabulary && shape.source_vocabulary != shape.target_vocabulary) {
    fail(ErrorCode::kInvalidArgument,
         "a shared vocabulary has one size; got {} source and {} target tokens",
         shape.source_vocabulary, shape.target_vocabulary);
  }
  check_tensor_group(shape.heads, shape.heads, shape.feed_forward,
                     std::min(shape.source_vocabulary, shape.target_vocabulary),
                     options.tensor.size);
  check_layers(shape.encoder_layers);
  check_layers(shape.decoder_layers);
  check_parameters(parameters_at_most(shape));
  const double hidden = static_cast<double>(shape.hidden);
  const double square = 1 / std::sqrt(hidden);  // Glorot: sqrt(2 / (in + out))
  const double wide = std::sqrt(2 / (hidden + static_cast<double>(shape.feed_forward)));
  const NormOptions norm = {.kind = ops::NormKind::kLayer,
                            .epsilon = options.epsilon.value_or(1e-5f),
                            .width = shape.hidden,
                            .bias = true,
                            .tensor = options.tensor};
  EmbeddingOptions source = {.vocabulary = shape.source_vocabulary,
                             .positions = shape.source_positions,
                             .types = 0,
                             .hidden = shape.hidden,
                             .stddev = square,
                             .dropout = options.dropout,
                             .tied_to = {},
                             .side = Side::kSource,
                             .tensor = options.tensor};
  EmbeddingOptions target = source;
  target.vocabulary = shape.target_vocabulary;
  target.positions = shape.target_positions;
  target.side = Side::kTarget;
  if (shape.shared_vocabulary) target.tied_to = "source.tokens";

  LayerOptions layer = {.norm = norm,
                        .attention = {.hidden = shape.hidden,
                                      .heads = shape.heads,
                                      .kv_heads = shape.heads,
                                      .causal = false,
                                      .biases = true,
                                      .dropout = options.dropout,
                                      .stddev = square,
                                      .projection_stddev = square,
                                      .rotary = false,
                                      .theta = options.theta,
                                      .side = Side::kSource,
                                      .tensor = options.tensor},
                        .feed_forward = {.hidden = shape.hidden,
                                         .width = shape.feed_forward,
                                         .activation = shape.activation,
                                         .biases = true,
                                         .stddev = wide,
                                         .down_stddev = wide,
                                         .tensor = options.tensor},
                        .dropout = options.dropout};
  Blocks blocks;
  blocks.push_back(std::make_unique<Embedding>("source", source));
  for (std::int64_t i = 0; i < shape.encoder_layers; ++i) {
    blocks.push_back(std::make_unique<Gpt2Layer>("encoder." + std::to_string(i), layer));
  }
  blocks.push_back(std::make_unique<DecoderStart>("target", target, norm));
  layer.attention.causal = true;
  layer.attention.side = Side::kTarget;
  for (std::int64_t i = 0; i < shape.decoder_layers; ++i) {
    blocks.push_back(
        std::make_unique<DecoderLayer<FeedForwardPart>>("decoder." + std::to_string(i), layer));
  }
  blocks.push_back(
      std::make_unique<LanguageHead>("head", norm,
                                     ClassifierOptions{.hidden = shape.hidden,
                                                       .classes = shape.target_vocabulary,
                                                       .tied_to = "target.tokens",
                                                       .bias = false,
                                                       .stddev = square,
                                                       .tensor = options.tensor}));
  return {"encoder-decoder", std::move(blocks)};
}

Model make_linear_model(std::int64_t features) {
  Blocks blocks;
  blocks.push_back(std::make_unique<LinearRegression>("linear", features));
  return {"linear", std::move(blocks)};
}

}  // namespace lockstep::nn
