// A tiny model of Hugging Face transformers (tests/fixtures/), its options and its batch.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "lockstep/io/safetensors.h"
#include "lockstep/train/options/options.h"
#include "tests/paths.h"

namespace lockstep::train {

// Those of make_fixtures.py.
inline constexpr const char* kFixtureModels[] = {
    "gpt2",     "llama",           "bert",           "mixtral",      "llama3",    "mistral",
    "qwen2",    "qwen3",           "phi3",           "phi3_window",  "gpt2_relu", "gpt2_gelu",
    "gpt_neox", "gpt_neox_serial", "mistral_window", "qwen2_window", "gemma2",    "gemma2_uncapped",
    "t5",       "t5_v1_1",         "phi3_long",      "phi3_short"};

inline std::string path_of_fixture(const std::string& name) {
  return in_sources("tests/fixtures/") + name;
}

// One fixture, its options and its batch.
class Fixture {
 public:
  explicit Fixture(const std::string& model)
      : file(path_of_fixture(model + ".safetensors")),
        about(nlohmann::json::parse(file.metadata().at("about"))) {
    const nlohmann::json& sizes = about["model"];
    const auto size = [&](const char* key) { return sizes[key].get<int>(); };
    family = plan::family_from_name(sizes["family"].get<std::string>());
    options.model.family = model_family(family);
    options.model.layers = size("layers");
    options.model.hidden = size("hidden");
    options.model.heads = size("heads");
    options.model.kv_heads = size("kv_heads");
    options.model.feed_forward = size("feed_forward");
    options.model.vocabulary = size("vocabulary");
    options.model.positions = size("positions");
    if (sizes.contains("experts")) {
      options.model.experts = size("experts");
      options.model.experts_per_token = size("experts_per_token");
      options.model.router_loss = sizes["router_loss"].get<double>();
    }
    options.model.head_size = sizes.value("head_size", 0);
    options.model.qkv_bias = sizes.value("qkv_bias", false);
    options.model.window = sizes.value("window", 0);
    options.model.unwindowed_layers = sizes.value("unwindowed_layers", 0);
    options.model.attention_softcap =
        sizes.value("attention_softcap", options.model.attention_softcap);
    options.model.logit_softcap = sizes.value("logit_softcap", options.model.logit_softcap);
    options.model.query_pre_attn_scalar = sizes.value("query_pre_attn_scalar", 0);
    options.model.decoder_layers = sizes.value("decoder_layers", 0);
    options.model.relative_buckets = sizes.value("relative_buckets", 0);
    options.model.relative_distance = sizes.value("relative_distance", 0);
    options.model.rotary_share = sizes.value("rotary_share", 0.0);
    options.model.parallel_residual = sizes.value("parallel_residual", true);
    options.model.activation = activation_named(sizes.value("activation", "auto"));
    options.model.rope_theta = sizes.value("theta", options.model.rope_theta);
    if (sizes.contains("tied")) {
      options.model.tie_word_embeddings = sizes["tied"] ? TieChoice::kTied : TieChoice::kUntied;
    }
    if (sizes.contains("scaling")) read_scaling(sizes["scaling"]);
    if (sizes.contains("longrope")) read_long_rope(sizes["longrope"]);
    options.model.norm_epsilon = sizes["epsilon"].get<double>();
    const Shape& shape = file.at("input.input_ids").shape;
    options.batch.micro = static_cast<int>(shape[0]);
    options.batch.sequence = static_cast<int>(shape[1]);
    options.precision = plan::Precision::kF32;
    const nlohmann::json& adamw = about["adamw"];
    options.optimizer.beta1 = adamw["betas"][0].get<double>();
    options.optimizer.beta2 = adamw["betas"][1].get<double>();
    options.optimizer.epsilon = adamw["eps"].get<double>();
    options.optimizer.weight_decay = adamw["weight_decay"].get<double>();
    options.optimizer.max_grad_norm = 0;
    options.schedule.learning_rate = adamw["lr"].get<double>();

    batch.shape = {.batch = shape[0], .sequence = shape[1]};
    const bool two_stacks = file.find("input.decoder_input_ids") != nullptr;
    if (two_stacks) {
      batch.shape.source_sequence = shape[1];
      batch.source = integers("input.input_ids", source_);
      batch.source_mask = mask_of("input.attention_mask", source_mask_);
      batch.tokens = integers("input.decoder_input_ids", tokens_);
      batch.key_mask = mask_of("input.decoder_attention_mask", mask_);
    } else {
      batch.tokens = integers("input.input_ids", tokens_);
      if (file.find("input.attention_mask") != nullptr) {
        batch.key_mask = mask_of("input.attention_mask", mask_);
      }
    }
    batch.targets = integers("input.targets", targets_);
    if (file.find("input.token_type_ids") != nullptr) {
      batch.types = integers("input.token_type_ids", types_);
    }
  }

  std::vector<float> floats(const std::string& name) const {
    const auto loaded = file.load(name);
    const auto values = loaded.tensor.as<float>();
    return {values.begin(), values.end()};
  }

  io::SafetensorsFile file;
  nlohmann::json about;
  plan::Family family = plan::Family::kGpt2;
  TrainOptions options;
  nn::Batch batch;

 private:
  static ActivationChoice activation_named(const std::string& name) {
    if (name == "gelu_tanh") return ActivationChoice::kGeluTanh;
    if (name == "gelu") return ActivationChoice::kGeluErf;
    return name == "relu" ? ActivationChoice::kRelu : ActivationChoice::kAuto;
  }
  void read_scaling(const nlohmann::json& scaling) {
    ops::RotaryScaling& rope = options.model.rope;
    rope.factor = scaling["factor"];
    options.model.rope_scaling = RopeScaling::kLinear;
    if (scaling["original_positions"] == 0) return;
    options.model.rope_scaling = RopeScaling::kLlama3;
    rope.original_positions = scaling["original_positions"];
    rope.low_turns = scaling["low_turns"];
    rope.high_turns = scaling["high_turns"];
  }
  void read_long_rope(const nlohmann::json& rope) {
    options.model.rope_scaling = RopeScaling::kLongRope;
    options.model.rope.original_positions = rope["original_positions"];
    options.model.rope_short_factors = rope["short_factors"].get<std::vector<double>>();
    options.model.rope_long_factors = rope["long_factors"].get<std::vector<double>>();
    options.model.rope_attention_factor = rope["attention_factor"];
  }
  std::vector<float> whole_numbers(const std::string& name) const {
    const auto loaded = file.load(name);
    const auto values = loaded.tensor.as<std::int64_t>();
    return {values.begin(), values.end()};
  }
  Tensor mask_of(const std::string& name, std::vector<std::uint8_t>& to) const {
    for (const float one : whole_numbers(name)) to.push_back(static_cast<std::uint8_t>(one));
    return tensor_of(std::span(to), file.at(name).shape);
  }
  Tensor integers(const std::string& name, std::vector<std::int32_t>& to) const {
    for (const float one : whole_numbers(name)) to.push_back(static_cast<std::int32_t>(one));
    return tensor_of(std::span(to), file.at(name).shape);
  }

  std::vector<std::int32_t> tokens_, targets_, types_, source_;
  std::vector<std::uint8_t> mask_, source_mask_;
};

inline double largest(std::span<const float> values) {
  double most = 0;
  for (const float one : values) most = std::max(most, std::abs(static_cast<double>(one)));
  return most;
}

inline double largest_difference(std::span<const float> ours, std::span<const float> theirs) {
  EXPECT_EQ(ours.size(), theirs.size());
  double most = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double difference = std::abs(static_cast<double>(ours[i]) - theirs[i]);
    most = difference > most || std::isnan(difference) ? difference : most;
  }
  return most;
}

}  // namespace lockstep::train
