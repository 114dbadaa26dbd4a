// The model of a run, and what of it a rank has.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/nn/stage.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

namespace {

nn::LongRope long_rope_of(const ModelChoice& model) {
  const auto floats = [](const std::vector<double>& values) {
    std::vector<float> rounded;
    for (const double value : values) rounded.push_back(static_cast<float>(value));
    return rounded;
  };
  return {.original_positions = static_cast<std::int64_t>(model.rope.original_positions),
          .short_factors = floats(model.rope_short_factors),
          .long_factors = floats(model.rope_long_factors),
          .amplitude = static_cast<float>(model.rope_attention_factor)};
}

}  // namespace

nn::ModelOptions model_options_of(const TrainOptions& options) {
  nn::ModelOptions model;
  model.dropout = options.model.dropout;
  if (options.model.norm_epsilon > 0) {
    model.epsilon = static_cast<float>(options.model.norm_epsilon);
  }
  model.theta = static_cast<float>(options.model.rope_theta);
  const RopeScaling scaling = options.model.rope_scaling;
  if (scaling == RopeScaling::kLongRope) {
    model.long_rope = long_rope_of(options.model);
  } else if (scaling != RopeScaling::kNone) {
    model.scaling = options.model.rope;
  }
  if (scaling == RopeScaling::kLinear) model.scaling.original_positions = 0;
  const plan::FamilyParts* const parts = parts_of(options);
  if (options.model.rotary_share > 0 && (parts == nullptr || parts->partly_rotary)) {
    model.rotary_share = options.model.rotary_share;
  }
  const ModelFamily family = family_of(options);
  const bool chooses = family == ModelFamily::kGpt2 || family == ModelFamily::kGptNeox ||
                       family == ModelFamily::kCustom;
  if (chooses && options.model.activation != ActivationChoice::kAuto) {
    model.activation = static_cast<ops::Activation>(static_cast<int>(options.model.activation) - 1);
  }
  if (parts != nullptr && parts->parallel) {
    model.parallel_residual = options.model.parallel_residual;
  }
  if (parts != nullptr && parts->soft_caps) {
    model.attention_softcap = options.model.attention_softcap;
    model.logit_softcap = options.model.logit_softcap;
  }
  model.router_loss = options.model.router_loss;
  model.tensor = {.size = options.parallel.tensor,
                  .rank = options.parallel.tensor_rank,
                  .divides_tokens = options.parallel.sequence};
  model.experts = {.size = options.parallel.expert, .rank = options.parallel.expert_rank};
  return model;
}

namespace {

nn::Model custom_model_of(const TrainOptions& options) {
  if (!options.make_model) {
    fail(ErrorCode::kUnsupported,
         "model.family = \"custom\" is a model that a program makes itself; run that program "
         "(examples/custom_model.cpp shows one)");
  }
  return options.make_model(options);
}

}  // namespace

nn::Model unstaged_model_of(const TrainOptions& options) {
  const nn::ModelOptions model = model_options_of(options);
  if (options.make_model && family_of(options) != ModelFamily::kCustom) {
    fail(ErrorCode::kInvalidArgument,
         "this program trains a model of its own, but {} is given; leave model.name and "
         "model.family out",
         options.model.name.empty()
             ? fmt::format("model.family = \"{}\"", name(options.model.family))
             : fmt::format("model.name = \"{}\"", options.model.name));
  }
  switch (family_of(options)) {
    case ModelFamily::kCustom:
      return custom_model_of(options);
    case ModelFamily::kEncoderDecoder:
      return nn::make_encoder_decoder(encoder_decoder_shape_of(options), model);
    case ModelFamily::kLinear:
      if (options.model.features == 0) {
        fail(ErrorCode::kInvalidArgument, "a linear model needs model.features, or data.table");
      }
      return nn::make_linear_model(options.model.features);
    default:
      return nn::make_model(shape_of(options), model);
  }
}

nn::Model whole_model_of(TrainOptions options) {
  options.parallel.tensor = 1;
  options.parallel.tensor_rank = 0;
  options.parallel.sequence = false;
  options.parallel.expert = 1;
  options.parallel.expert_rank = 0;
  return unstaged_model_of(options);
}

plan::PipelineShape pipeline_shape_of(const TrainOptions& options) {
  const parallel::ParallelOptions& parallel = options.parallel;
  const bool interleaves = parallel.pipeline > 1 && parallel.pipeline_schedule == "interleaved";
  return {.stages = parallel.pipeline,
          .micro_batches = solved(options.batch).accumulation,
          .chunks = interleaves ? parallel.pipeline_chunks : 1,
          .slices = std::max(static_cast<int>(token_slices_of(options).size()), 1)};
}

plan::StepSchedule step_schedule_of(const TrainOptions& options) {
  const bool pipelines = options.parallel.pipeline > 1;
  plan::PipelineShape shape = pipeline_shape_of(options);
  // A batch that follows another one and is followed by one; more of them need no more buffers.
  if (parallel::keeps_two_versions(options.parallel)) shape.batches = 3;
  return plan::make_step_schedule(
      plan::find_pipeline_kind(pipelines ? options.parallel.pipeline_schedule : "sequential"),
      shape);
}

nn::Cut cut_of(const TrainOptions& options) {
  return balanced_cut(whole_model_of(options), setup_of(options), *make_reference_ops(),
                      pipeline_shape_of(options));
}

namespace {

// A cut of undivided layers as one of layers in two halves (nn/blocks/divided_layer.h), which stay
// together: the model begins with an embedding and ends with a head.
nn::Cut with_divided_layers(nn::Cut cut, int blocks) {
  int block = 0;
  for (int& count : cut.blocks) {
    const int end = block + count;
    for (; block < end; ++block) {
      if (block > 0 && block + 1 < blocks) ++count;
    }
  }
  return cut;
}

}  // namespace

nn::Model model_of(const TrainOptions& options) {
  nn::Model whole = unstaged_model_of(options);
  if (options.parallel.pipeline == 1) return whole;
  nn::Cut cut = cut_of(options);
  if (options.parallel.expert > 1) {
    cut = with_divided_layers(std::move(cut), static_cast<int>(whole_model_of(options).size()));
  }
  return stage_of(whole, setup_of(options), *make_reference_ops(), cut, options.parallel.stage);
}

}  // namespace lockstep::train
