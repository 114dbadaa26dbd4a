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
  choice.feed_forward = to_int(shape.feed_forward);
  choice.vocabulary = to_int(shape.vocabulary);
  choice.positions = to_int(shape.positions);
  if (config.options.epsilon) choice.norm_epsilon = as_written(*config.options.epsilon);
  choice.rope_theta = as_written(config.options.theta);
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
