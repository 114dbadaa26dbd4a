#include "lockstep/train/options.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "lockstep/base/cpu_set.h"
#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kGradientNames[] = {"auto", "compute", "f32"};

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
  config.bind("model.family", model.family, names_of(plan::kAllFamilies),
              "The family of a model that is described by its sizes.");
  const auto size = [&](std::string_view key, int& field, std::string_view doc) {
    config.bind(key, field, doc, {.min = 0});
  };
  size("model.layers", model.layers, "How many layers.");
  size("model.hidden", model.hidden, "The hidden size.");
  size("model.heads", model.heads, "Attention heads.");
  size("model.kv_heads", model.kv_heads, "Key/value heads; 0: as many as heads.");
  size("model.feed_forward", model.feed_forward,
       "The feed-forward width; 0: 4 times hidden, in llama about 8/3.");
  size("model.vocabulary", model.vocabulary, "Tokens there are; 0: the family's.");
  size("model.positions", model.positions, "The longest sequence; 0: the family's.");
  config.bind("model.epsilon", model.epsilon,
              "What norms add to the variance; 0: 1e-5 in gpt2, 1e-6 in llama, 1e-12 in bert.",
              {.min = 0, .max = 1});
  config.bind("model.theta", model.theta, "The base of rotary positions, in llama.", {.min = 1});
  config.bind("model.dropout", model.dropout,
              "The probability with which elements are dropped in training.",
              {.min = 0, .max = 0.99});
}

bool describes_sizes(const ModelChoice& model) {
  return model.layers + model.hidden + model.heads + model.kv_heads + model.feed_forward +
             model.vocabulary + model.positions >
         0;
}

plan::Count or_usual(int chosen, plan::Count usual) {
  return chosen > 0 ? static_cast<plan::Count>(chosen) : usual;
}

}  // namespace

std::string_view name(GradientChoice gradients) {
  return kGradientNames[static_cast<std::size_t>(gradients)];
}

void bind(Config& config, TrainOptions& options) {
  bind(config, options.model);
  config.bind("batch.sequence", options.batch.sequence,
              "Tokens of a sequence; 0: as many as the model has positions.", {.min = 0});
  config.bind("batch.micro", options.batch.micro, "Sequences that are computed at once.",
              {.min = 1});
  config.bind("batch.accumulation", options.batch.accumulation,
              "Micro-batches whose gradients are added up to one step.", {.min = 1});
  config.bind("precision", options.precision, names_of(plan::kAllPrecisions),
              "What is computed in; below f32 a master copy of the parameters is kept in f32.");
  config.bind("gradients", options.gradients, kGradientNames,
              "What gradients are kept in: the precision (compute), f32, or by auto f32 only where "
              "several micro-batches are added up.");
  config.bind("recompute", options.recompute, names_of(plan::kAllRecompute),
              "What backward does again instead of keeping it.");
  optim::bind(config, options.optimizer);
  optim::bind(config, options.schedule);
  optim::bind(config, options.loss_scale);
  config.bind("threads", options.threads, "Threads that compute; 0: one for each allowed core.",
              {.min = 0, .max = 4096});
  config.bind("seed", options.seed, "Of initial parameters, data order and dropout.", {.min = 0});
  config.bind("memory.limit", options.memory_limit,
              "A run that needs more bytes than this is refused before it starts; 0: no limit.");
}

plan::ModelShape shape_of(const ModelChoice& choice) {
  const bool sized = describes_sizes(choice);
  if (!choice.name.empty() && sized) {
    fail(ErrorCode::kInvalidArgument,
         "model.name = \"{}\" has its sizes already; leave it out to describe a model by "
         "model.layers, model.hidden, model.heads and so on",
         choice.name);
  }
  if (!choice.name.empty()) return nn::trainable(plan::find_model(choice.name));
  if (choice.layers == 0 || choice.hidden == 0 || choice.heads == 0) {
    fail(ErrorCode::kInvalidArgument,
         "say which model: model.name with one of {}; or model.layers, model.hidden and "
         "model.heads of your own",
         known_models());
  }
  plan::ModelShape shape = plan::usual_shape(choice.family);
  shape.name =
      fmt::format("{} of {} x {}", plan::name(choice.family), choice.layers, choice.hidden);
  shape.layers = or_usual(choice.layers, 0);
  shape.hidden = or_usual(choice.hidden, 0);
  shape.heads = or_usual(choice.heads, 0);
  shape.kv_heads = or_usual(choice.kv_heads, shape.heads);
  shape.feed_forward =
      or_usual(choice.feed_forward, plan::usual_feed_forward(shape.family, shape.hidden));
  shape.vocabulary = or_usual(choice.vocabulary, shape.vocabulary);
  shape.positions = or_usual(choice.positions, shape.positions);
  shape = nn::trainable(shape);
  plan::check(shape);
  return shape;
}

nn::Model model_of(const TrainOptions& options) {
  nn::ModelOptions model;
  model.dropout = options.model.dropout;
  if (options.model.epsilon > 0) model.epsilon = static_cast<float>(options.model.epsilon);
  model.theta = static_cast<float>(options.model.theta);
  return nn::make_model(shape_of(options.model), model);
}

nn::Setup setup_of(const TrainOptions& options) {
  const plan::ModelShape shape = shape_of(options.model);
  const plan::Count sequence = or_usual(options.batch.sequence, shape.positions);
  if (shape.learns_positions() && sequence > shape.positions) {
    fail(ErrorCode::kInvalidArgument,
         "batch.sequence = {} is longer than the {} positions that {} has", sequence,
         shape.positions, shape.name);
  }
  const DType dtype = dtype_of(options.precision);
  const bool wide = options.gradients == GradientChoice::kF32 ||
                    (options.gradients == GradientChoice::kAuto && options.batch.accumulation > 1);
  return {.shape = {.batch = options.batch.micro,
                    .sequence = static_cast<std::int64_t>(sequence),
                    .source_sequence = 0},
          .dtype = dtype,
          .gradient = wide ? DType::kF32 : dtype,
          .recompute = options.recompute};
}

nn::OptimizerState optimizer_state_of(const TrainOptions& options) {
  if (optim::has_moments(options.optimizer)) return nn::OptimizerState::kMoments;
  return optim::has_velocity(options.optimizer) ? nn::OptimizerState::kVelocity
                                                : nn::OptimizerState::kNone;
}

int threads_of(const TrainOptions& options) {
  return options.threads > 0 ? options.threads : CpuSet::of_this_thread().count();
}

DType dtype_of(plan::Precision precision) {
  switch (precision) {
    case plan::Precision::kBf16:
      return DType::kBF16;
    case plan::Precision::kF16:
      return DType::kF16;
    case plan::Precision::kF32:
      break;
  }
  return DType::kF32;
}

}  // namespace lockstep::train
