// The answer of `lockstep plan` for programs: every number exact, bytes and FLOPs without units.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "lockstep/cli/plan/question.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;
using plan::Count;
using plan::Recompute;

Json shape_json(const plan::ModelShape& shape) {
  Json json{{"family", family_name(shape)},
            {"vocabulary", shape.vocabulary},
            {"positions", shape.positions},
            {"hidden", shape.hidden},
            {"layers", shape.layers},
            {"heads", shape.heads},
            {"kv_heads", shape.kv_heads},
            {"head_size", shape.head_width()},
            {"feed_forward", shape.feed_forward},
            {"head", name(shape.head)},
            {"biases", shape.biases}};
  if (shape.qkv_biases) json["qkv_biases"] = true;
  if (shape.window > 0) {
    json["window"] = shape.window;
    json["unwindowed_layers"] = shape.unwindowed_layers;
    if (shape.parts().alternating) json["windowed_layers"] = shape.windowed_layers();
  }
  if (shape.has_experts()) {
    json["experts"] = shape.experts;
    json["experts_per_token"] = shape.experts_per_token;
  }
  if (shape.is_encoder_decoder()) json["decoder_layers"] = shape.decoder_layers;
  if (shape.parts().relative_bias) {
    json["relative_buckets"] = shape.relative_buckets;
    json["relative_distance"] = shape.relative_distance;
  }
  return json;
}

Json parameters_json(const PlanQuestion& question) {
  if (!question.shape) return {{"total", question.parameters}};
  const plan::Parameters parts = plan::count_parameters(*question.shape);
  return {{"embedding", parts.embedding},
          {"positions", parts.positions},
          {"token_types", parts.token_types},
          {"attention", parts.attention},
          {"feed_forward", parts.feed_forward},
          {"norms", parts.norms},
          {"head", parts.head},
          {"total", parts.total()}};
}

Json states_json(const plan::StateBytes& states) {
  return {{"parameters", states.parameters},  {"gradients", states.gradients},
          {"master", states.master},          {"moment", states.first_moment},
          {"variance", states.second_moment}, {"optimizer", states.optimizer()},
          {"total", states.total()}};
}

Json ranks_json(const PlanQuestion& question) {
  Json array = Json::array();
  for (const Count ranks : question.ranks) {
    for (int stage = 0; stage < plan::kZeroStages; ++stage) {
      const plan::StateBytes states =
          plan::state_bytes(question.parameters, question.precision, stage, ranks);
      Json line{{"ranks", ranks},
                {"zero", stage},
                {"formula", plan::state_formula(question.precision, stage)},
                {"bytes", states_json(states)},
                {"traffic_multiple", plan::traffic_multiple(stage)},
                {"traffic_bytes",
                 plan::traffic_bytes(question.parameters, question.precision, stage, ranks)}};
      if (question.memory) {
        line["fits_states"] = states.total() <= *question.memory;
        for (const Recompute mode : recompute_modes(question)) {
          if (question.shape)
            line["fits"][std::string(name(mode))] = fits(question, states, mode, *question.memory);
        }
      }
      array.push_back(std::move(line));
    }
  }
  return array;
}

// By stage; null where no number of ranks is enough.
Json fewest_ranks_json(const PlanQuestion& question, Count memory) {
  Json array = Json::array();
  for (int stage = 0; stage < plan::kZeroStages; ++stage) {
    Json line{{"zero", stage}};
    for (const Recompute mode : recompute_modes(question)) {
      const auto ranks = fewest_ranks(question, stage, mode, memory);
      line[question.shape ? std::string(name(mode)) : "states"] = ranks ? Json(*ranks) : Json();
    }
    array.push_back(std::move(line));
  }
  return array;
}

Json activations_json(const PlanQuestion& question, const plan::ModelShape& shape) {
  const plan::TokenFlops flops = plan::count_flops(shape, question.sequence);
  Json modes;
  for (const Recompute mode : plan::kFormulaRecompute) {
    modes[std::string(name(mode))] = {
        {"bytes_per_layer", plan::activation_bytes(shape, question.sequence, question.batch,
                                                   question.precision, mode)},
        {"bytes", activations(question, mode)},
        {"flops_per_token", flops.recomputed(mode)}};
  }
  return {{"batch", question.batch},
          {"sequence", question.sequence},
          {"estimate", !plan::activation_formula_is_exact(shape)},
          {"recompute", std::move(modes)}};
}

Json flops_json(const PlanQuestion& question) {
  Json object{
      {"per_token_rule", plan::rule_of_thumb_flops(static_cast<double>(question.parameters), 1)}};
  if (!question.shape) return object;
  const plan::TokenFlops flops = plan::count_flops(*question.shape, question.sequence);
  const Count tokens = plan::product({question.batch, question.sequence});
  object["per_token"] = {{"forward", flops.forward()},
                         {"backward", flops.backward()},
                         {"attention", 3 * flops.attention},
                         {"total", flops.total()}};
  object["tokens_per_step"] = tokens;
  object["per_step"] = static_cast<double>(tokens) * flops.total();
  return object;
}

Json cost_json(const PlanQuestion& question, double flops) {
  Json object{{"flops", flops}};
  if (question.days) {
    const double gpus = plan::gpus_needed(flops, *question.days, question.flops_per_gpu);
    object["gpus"] = gpus;
    object["gpus_whole"] = plan::whole_gpus(gpus);
  }
  if (question.gpus) {
    object["days"] = plan::days_needed(flops, *question.gpus, question.flops_per_gpu);
  }
  return object;
}

Json training_json(const PlanQuestion& question, double tokens) {
  Json object{{"tokens", tokens}};
  if (question.days || question.gpus) object["gpu_flops"] = question.flops_per_gpu;
  if (question.days) object["days_asked"] = *question.days;
  if (question.gpus) object["gpus_asked"] = *question.gpus;
  object["rule"] = cost_json(
      question, plan::rule_of_thumb_flops(static_cast<double>(question.parameters), tokens));
  if (question.shape) {
    const double per_token = plan::count_flops(*question.shape, question.sequence).total();
    object["counted"] = cost_json(question, per_token * tokens);
  }
  return object;
}

}  // namespace

std::string plan_json(const PlanQuestion& question) {
  Json object{{"model", question.shape ? Json(question.shape->name) : Json()}};
  if (question.shape) object["shape"] = shape_json(*question.shape);
  object["precision"] = name(question.precision);
  object["parameters"] = parameters_json(question);
  object["bytes"] = states_json(plan::state_bytes(question.parameters, question.precision, 0, 1));
  if (question.memory) object["memory"] = *question.memory;
  object["states"] = ranks_json(question);
  if (question.memory) object["fewest_ranks"] = fewest_ranks_json(question, *question.memory);
  if (question.shape) object["activations"] = activations_json(question, *question.shape);
  object["flops"] = flops_json(question);
  if (question.tokens) object["training"] = training_json(question, *question.tokens);
  return object.dump(1) + "\n";
}

}  // namespace lockstep::cli
