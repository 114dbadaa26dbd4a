#include "lockstep/train/model_io/stored_model.h"

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"
#include "lockstep/ops/ops.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/options/run_options.h"

namespace lockstep::train {
namespace {

int to_int(plan::Count count) {
  if (count > static_cast<plan::Count>(std::numeric_limits<int>::max())) {
    fail(ErrorCode::kInvalidArgument, "a size of {} is more than models of lockstep can have",
         count);
  }
  return static_cast<int>(count);
}

}  // namespace

ModelChoice choice_of(const nn::HuggingFaceConfig& config) {
  const plan::ModelShape& shape = config.shape;
  ModelChoice choice;
  choice.family = model_family(shape.family);
  choice.layers = to_int(shape.layers);
  choice.hidden = to_int(shape.hidden);
  choice.heads = to_int(shape.heads);
  choice.kv_heads = to_int(shape.kv_heads);
  if (shape.head_width() * shape.heads != shape.hidden) choice.head_size = to_int(shape.head_size);
  choice.qkv_bias = shape.qkv_biases;
  choice.window = to_int(shape.window);
  choice.unwindowed_layers = to_int(shape.unwindowed_layers);
  const nn::ModelOptions& options = config.options;
  if (options.activation && *options.activation != nn::usual_activation(shape.family)) {
    choice.activation = static_cast<ActivationChoice>(static_cast<int>(*options.activation) + 1);
  }
  if (options.rotary_share && *options.rotary_share != shape.parts().rotary_share) {
    choice.rotary_share = *options.rotary_share;
  }
  choice.parallel_residual = options.parallel_residual.value_or(true);
  choice.attention_softcap = options.attention_softcap.value_or(choice.attention_softcap);
  choice.logit_softcap = options.logit_softcap.value_or(choice.logit_softcap);
  choice.query_pre_attn_scalar = to_int(shape.query_pre_attn_scalar);
  choice.decoder_layers = to_int(shape.decoder_layers);
  choice.relative_buckets = to_int(shape.relative_buckets);
  choice.relative_distance = to_int(shape.relative_distance);
  choice.feed_forward = to_int(shape.feed_forward);
  choice.experts = to_int(shape.experts);
  choice.experts_per_token = to_int(shape.experts_per_token);
  choice.router_loss = config.options.router_loss;
  choice.vocabulary = to_int(shape.vocabulary);
  choice.positions = to_int(shape.positions);
  if (config.options.epsilon) choice.norm_epsilon = as_written(*config.options.epsilon);
  choice.rope_theta = as_written(config.options.theta);
  const ops::RotaryScaling& scaling = config.options.scaling;
  if (scaling.factor != 1) {
    const bool linear = scaling.original_positions == 0;
    choice.rope_scaling = linear ? RopeScaling::kLinear : RopeScaling::kLlama3;
    if (linear) {
      choice.rope.factor = scaling.factor;
    } else {
      choice.rope = scaling;
    }
  }
  if (config.options.long_rope) {
    const nn::LongRope& rope = *config.options.long_rope;
    choice.rope_scaling = RopeScaling::kLongRope;
    choice.rope.original_positions = static_cast<double>(rope.original_positions);
    for (const float one : rope.short_factors) choice.rope_short_factors.push_back(as_written(one));
    for (const float one : rope.long_factors) choice.rope_long_factors.push_back(as_written(one));
    choice.rope_attention_factor = as_written(rope.amplitude);
  }
  choice.dropout = config.options.dropout;
  if (shape.head == plan::Head::kOwn) choice.tie_word_embeddings = TieChoice::kUntied;
  if (shape.head == plan::Head::kTied) choice.tie_word_embeddings = TieChoice::kTied;
  return choice;
}

TrainOptions stored_options(const Checkpoint& checkpoint) {
  RunOptions options;
  Config config;
  bind(config, options);
  config.read_toml(checkpoint.config, (checkpoint.folder / kConfigFile).string());
  return options.train;
}

nn::FlatParameters flat_of(const nn::Model& model) {
  const auto ops = make_reference_ops();
  nn::Setup setup;
  setup.shape = {.batch = 1, .sequence = 1, .source_sequence = 1};
  return {model, nn::specs_of(model, setup, *ops)};
}

}  // namespace lockstep::train
