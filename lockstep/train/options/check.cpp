// Settings that do not go together.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/options/ring_limit.h"

namespace lockstep::train {
namespace {

// Blocks of other programs know nothing of groups that divide them.
void refuse_custom(const TrainOptions& options, const std::string& setting) {
  if (family_of(options) != ModelFamily::kCustom) return;
  fail(ErrorCode::kUnsupported, "{} is not supported with model.family = \"custom\"; leave it out",
       setting);
}

// What does not divide a model by tensor groups yet. (Models that cannot be divided are refused
// when they are made.)
void check_tensor_groups(const TrainOptions& options) {
  const int tensor = options.parallel.tensor;
  if (tensor == 1) return;
  refuse_custom(options, fmt::format("parallel.tensor = {}", tensor));
  if (family_of(options) == ModelFamily::kLinear) {
    fail(
        ErrorCode::kUnsupported,
        "model.family = \"linear\" has nothing that parallel.tensor = {} ranks could divide; leave "
        "parallel.tensor out",
        tensor);
  }
}

void check_equal_shares(const TrainOptions& options, const std::string& setting) {
  const BatchChoice batch = solved(options.batch);
  const int all = batch.sequences / batch.micro;
  const int readers = batch.readers();
  if (all % readers == 0) return;
  const int below = all / readers * readers * batch.micro;
  fail(
      ErrorCode::kInvalidArgument,
      "a step of {} micro-batches gives {} workers unequal shares, which {} does not support; take "
      "train.global_batch_size = {} or {}",
      all, readers, setting, below, below + readers * batch.micro);
}

// What does not work with pipelines yet, and steps whose workers have unequal shares: all stages of
// all workers follow one schedule.
void check_pipelines(const TrainOptions& options) {
  const int stages = options.parallel.pipeline;
  if (stages == 1) return;
  const auto refuse = [&](std::string_view setting) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with parallel.pipeline = {}; leave one of them out", setting, stages);
  };
  const nn::Tiers& tiers = options.offload.tiers;
  const auto refuse_tier = [&](std::string_view key, Tier tier) {
    if (tier != Tier::kDevice) refuse(fmt::format("{} = \"{}\"", key, name(tier)));
  };
  refuse_tier("offload.gradients", tiers.gradients);
  refuse_tier("offload.parameters", tiers.parameters);
  refuse_tier("offload.activations", tiers.activations);
  if (tiers.delayed_update) refuse("offload.delayed_update = true");
  if (options.memory_auto) refuse("memory.auto = true");
  if (options.recompute == RecomputeChoice::kAuto) refuse("train.recompute = \"auto\"");
  if (family_of(options) == ModelFamily::kLinear) refuse("model.family = \"linear\"");
  check_equal_shares(options, fmt::format("parallel.pipeline = {}", stages));
}

// What expert groups do not support, and steps whose workers have unequal shares: the ranks of a
// group compute every micro-batch together.
void check_expert_groups(const TrainOptions& options) {
  const int experts = options.parallel.expert;
  if (experts == 1) return;
  const auto refuse = [&](std::string_view setting) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with parallel.expert = {}; leave one of them out", setting, experts);
  };
  if (options.memory_auto) refuse("memory.auto = true");
  if (options.recompute == RecomputeChoice::kAuto) refuse("train.recompute = \"auto\"");
  // A model that is not described may come from run.init_from, and is checked when it is made.
  const plan::FamilyParts* parts = parts_of(options);
  if ((parts == nullptr || !parts->experts) && describes_model(options.model)) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.expert = {} divides the experts of a mixture, which model.family = \"{}\" does "
         "not have; take model.family = \"mixtral\", or leave parallel.expert out",
         experts, name(family_of(options)));
  }
  if (parts != nullptr && parts->experts) nn::check_expert_group(shape_of(options), experts);
  check_equal_shares(options, fmt::format("parallel.expert = {}", experts));
}

void check_rope_scaling(const ModelChoice& model) {
  if (model.rope_scaling != RopeScaling::kLlama3) return;
  if (model.rope.high_turns > model.rope.low_turns) return;
  fail(ErrorCode::kInvalidArgument,
       "model.rope_high_freq_factor = {} must be more than model.rope_low_freq_factor = {}",
       model.rope.high_turns, model.rope.low_turns);
}

// What cannot go through the stages in slices of tokens.
void check_slices(const TrainOptions& options) {
  if (!parallel::slices_tokens(options.parallel)) return;
  const auto refuse = [&](const std::string& setting, std::string_view why) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with parallel.pipeline_schedule = \"terapipe\": {}", setting, why);
  };
  if (!can_slice_tokens(options)) {
    const plan::FamilyParts* const parts = parts_of(options);
    refuse(fmt::format("model.family = \"{}\"", name(family_of(options))),
           parts != nullptr && parts->experts
               ? "its experts balance whole micro-batches; take 1f1b"
               : "its tokens depend on later ones, which come in another slice; take 1f1b");
  }
  if (const int micro = solved(options.batch).micro; micro > 1) {
    refuse(fmt::format("train.micro_batch_size = {}", micro),
           "a slice is of one sequence; take train.micro_batch_size = 1");
  }
  if (options.recompute == RecomputeChoice::kFull) {
    refuse("train.recompute = \"full\"",
           "later slices read the keys and values of earlier ones; take \"selective\"");
  }
  if (options.precision == plan::Precision::kFp8) {
    refuse("train.precision = \"fp8\"", "take bf16");
  }
  if (options.parallel.sequence) {
    refuse("parallel.sequence = true", "leave one of them out");
  }
  if (options.parallel.context > 1) {
    refuse(fmt::format("parallel.context = {}", options.parallel.context), "leave one of them out");
  }
  token_slices_of(options);  // throws for more slices than tokens
}

// What does not go with gradients that are one update late, and steps with too few micro-batches
// for two versions of the weights.
void check_two_versions(const TrainOptions& options) {
  if (!parallel::keeps_two_versions(options.parallel)) return;
  const auto refuse = [&](std::string_view setting, std::string_view instead) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with parallel.pipeline_schedule = \"pipedream_2bw\"; {}", setting,
         instead);
  };
  if (options.precision != plan::Precision::kF32 && options.precision != plan::Precision::kBf16) {
    refuse(fmt::format("train.precision = \"{}\"", plan::name(options.precision)),
           "its scales follow from the step before, whose update is not known yet. Take bf16 or "
           "f32");
  }
  if (options.offload.tiers.any()) {
    refuse("offload.*", "the optimizer's states stay where the update is computed. Leave it out");
  }
  step_schedule_of(options);  // throws for too few micro-batches
}

// What context groups cannot divide yet.
void check_context_groups(const TrainOptions& options) {
  const int context = options.parallel.context;
  if (context == 1) return;
  const auto refuse = [&](std::string_view setting) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with parallel.context = {}; leave one of them out", setting, context);
  };
  refuse_custom(options, fmt::format("parallel.context = {}", context));
  if (family_of(options) == ModelFamily::kLinear) refuse("model.family = \"linear\"");
  if (options.parallel.context_attention != parallel::ContextChoice::kRing) return;
  if (const std::string limit = ring_limit(options); !limit.empty()) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with parallel.context_attention = \"ring\"; take \"heads\", or "
         "sequences no longer than that",
         limit);
  }
  if (translates(options)) {
    fail(ErrorCode::kUnsupported,
         "model.family = \"{}\" is not supported with parallel.context_attention = \"ring\": its "
         "attentions are of three kinds; take \"heads\"",
         name(family_of(options)));
  }
}

}  // namespace

void check(const TrainOptions& options) {
  parallel::check(options.parallel, options.batch.workers);
  parallel::check(options.offload, options.parallel, worker_position_of(options));
  check_tensor_groups(options);
  check_pipelines(options);
  check_expert_groups(options);
  check_slices(options);
  check_two_versions(options);
  check_context_groups(options);
  check_rope_scaling(options.model);
  if (options.precision == plan::Precision::kF16 &&
      options.loss_scale.initial < options.loss_scale.min) {
    fail(ErrorCode::kInvalidArgument,
         "loss_scale.initial = {:g} is below loss_scale.min = {:g}; raise the first or lower the "
         "second",
         options.loss_scale.initial, options.loss_scale.min);
  }
  if (options.offload.tiers.delayed_update && options.precision == plan::Precision::kF32) {
    fail(ErrorCode::kUnsupported,
         "offload.delayed_update needs parameters beside their f32 master copy, which "
         "train.precision = \"f32\" does not have; use bf16, or leave it out");
  }
  if (options.slow_rank >= options.batch.workers) {
    fail(ErrorCode::kInvalidArgument,
         "debug.slow_rank = {}, but the workers of this run are ranks 0 to {}", options.slow_rank,
         options.batch.workers - 1);
  }
}

}  // namespace lockstep::train
