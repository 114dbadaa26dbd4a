#include "lockstep/nn/hugging_face/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::nn {
namespace {

using plan::Family;
using plan::Head;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kTypesOfBert = 2;

// The keys of one config.json. A key that is null counts as absent.
class Keys {
 public:
  Keys(const Json& json, std::string_view source) : json_(json), source_(source) {}

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  Keys object(const char* key) const {
    if (!json_[key].is_object()) reject(key, "an object");
    return {json_[key], source_};
  }
  // A size: whole and from 1 up.
  plan::Count size(const char* key) const {
    if (!has(key)) fail(ErrorCode::kInvalidArgument, "{} has no '{}'", source_, key);
    const Json& value = json_[key];
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1 ||
        value.get<std::int64_t>() > std::numeric_limits<std::int32_t>::max()) {
      reject(key, "a whole number from 1 to 2147483647");
    }
    return value.get<plan::Count>();
  }
  plan::Count size_or(const char* key, plan::Count otherwise) const {
    return has(key) ? size(key) : otherwise;
  }
  double number_or(const char* key, double otherwise, double least, double most) const {
    if (!has(key)) return otherwise;
    const Json& value = json_[key];
    if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most)) {
      reject(key, fmt::format("a number from {} to {}", least, most));
    }
    return value.get<double>();
  }
  double number(const char* key, double least, double most) const {
    if (!has(key)) fail(ErrorCode::kInvalidArgument, "{} has no '{}'", source_, key);
    return number_or(key, least, least, most);
  }
  bool flag_or(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_boolean()) reject(key, "true or false");
    return json_[key].get<bool>();
  }
  std::string text_or(const char* key, std::string otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_string()) reject(key, "a string");
    return json_[key].get<std::string>();
  }
  // The first string of an array.
  std::string first_of(const char* key) const {
    if (!has(key)) return "";
    const Json& value = json_[key];
    if (!value.is_array() || (!value.empty() && !value[0].is_string())) {
      reject(key, "an array of strings");
    }
    return value.empty() ? "" : value[0].get<std::string>();
  }

  // Refuses every value but these.
  void only_text(const char* key, const std::vector<std::string>& values) const {
    const std::string value = text_or(key, values.front());
    if (std::find(values.begin(), values.end(), value) != values.end()) return;
    refuse(key, fmt::format("only {}", fmt::join(values, " or ")));
  }
  void only(const char* key, bool value) const {
    if (flag_or(key, value) != value) refuse(key, fmt::format("only {}", value));
  }
  [[noreturn]] void refuse(const char* key, std::string_view what) const {
    fail(ErrorCode::kUnsupported, "{} has \"{}\": {}, but lockstep supports {}", source_, key,
         json_[key].dump(), what);
  }
  std::string_view source() const { return source_; }

 private:
  [[noreturn]] void reject(const char* key, std::string_view expected) const {
    fail(ErrorCode::kInvalidArgument, "{} has \"{}\": {}; {} was expected", source_, key,
         json_[key].dump(), expected);
  }

  const Json& json_;
  std::string_view source_;
};

Family family_of(const Keys& keys) {
  const std::string architecture = keys.first_of("architectures");
  const std::string type = keys.text_or("model_type", "");
  if (architecture == "GPT2LMHeadModel") return Family::kGpt2;
  if (architecture == "LlamaForCausalLM" || architecture == "MistralForCausalLM" ||
      architecture == "Qwen2ForCausalLM") {
    return Family::kLlama;
  }
  if (architecture == "MixtralForCausalLM") return Family::kMixtral;
  if (architecture == "BertForMaskedLM" || architecture == "BertForPreTraining") {
    return Family::kBert;
  }
  if (architecture.empty() && (type == "mistral" || type == "qwen2")) return Family::kLlama;
  if (architecture.empty() &&
      (type == "gpt2" || type == "llama" || type == "bert" || type == "mixtral")) {
    return plan::family_from_name(type);
  }
  fail(ErrorCode::kUnsupported,
       "{} describes a '{}', which lockstep does not support; it supports GPT2LMHeadModel, "
       "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, MixtralForCausalLM and "
       "BertForMaskedLM",
       keys.source(), architecture.empty() ? type : architecture);
}

// One rate of dropout for all of a model's; says so where there are several.
void read_dropout(const Keys& keys, const std::vector<const char*>& names,
                  HuggingFaceConfig& config) {
  constexpr double kUsual = 0.1;
  config.options.dropout = keys.number_or(names.front(), kUsual, 0, 0.99);
  for (const char* name : names) {
    const double other = keys.number_or(name, kUsual, 0, 0.99);
    if (other == config.options.dropout) continue;
    config.notices.push_back(
        fmt::format("{} = {} differs from {} = {}; model.dropout is the latter", name, other,
                    names.front(), config.options.dropout));
  }
}

void read_gpt2(const Keys& keys, HuggingFaceConfig& config) {
  plan::ModelShape& shape = config.shape;
  shape.vocabulary = keys.size("vocab_size");
  shape.positions = keys.size("n_positions");
  shape.hidden = keys.size("n_embd");
  shape.layers = keys.size("n_layer");
  shape.heads = shape.kv_heads = keys.size("n_head");
  shape.feed_forward = keys.size_or("n_inner", 4 * shape.hidden);
  shape.head = keys.flag_or("tie_word_embeddings", true) ? Head::kTied : Head::kOwn;
  keys.only_text("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  keys.only("scale_attn_weights", true);
  keys.only("scale_attn_by_inverse_layer_idx", false);
  keys.only("add_cross_attention", false);
  config.options.epsilon = static_cast<float>(keys.number_or("layer_norm_epsilon", 1e-5, 1e-30, 1));
  read_dropout(keys, {"resid_pdrop", "embd_pdrop", "attn_pdrop"}, config);
}

ops::RotaryScaling read_scaling(const Keys& rotary, bool linear) {
  constexpr double kMost = 1e9;
  ops::RotaryScaling scaling;
  scaling.factor = rotary.number("factor", 1, kMost);
  if (linear) return scaling;
  scaling.original_positions = rotary.number("original_max_position_embeddings", 1, kMost);
  scaling.low_turns = rotary.number("low_freq_factor", 0, kMost);
  scaling.high_turns = rotary.number("high_freq_factor", 0, kMost);
  if (scaling.high_turns <= scaling.low_turns) {
    rotary.refuse("high_freq_factor", "only more than low_freq_factor");
  }
  return scaling;
}

// Rotary positions: one object in newer files, keys of the model in older ones.
void read_rotary(const Keys& keys, double usual, HuggingFaceConfig& config) {
  double theta = keys.number_or("rope_theta", usual, 1, 1e30);
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    if (!keys.has(name)) continue;
    const Keys rotary = keys.object(name);
    const std::string type = rotary.text_or("rope_type", rotary.text_or("type", "default"));
    if (type == "linear" || type == "llama3") {
      config.options.scaling = read_scaling(rotary, type == "linear");
    } else if (type != "default") {
      keys.refuse(name, "only the rope_types \"default\", \"linear\" and \"llama3\"");
    }
    theta = rotary.number_or("rope_theta", theta, 1, 1e30);
    if (rotary.number_or("partial_rotary_factor", 1, 0, 1) != 1) {
      keys.refuse(name, "only a partial_rotary_factor of 1");
    }
  }
  config.options.theta = static_cast<float>(theta);
}

void read_experts(const Keys& keys, HuggingFaceConfig& config) {
  config.shape.experts = keys.size_or("num_local_experts", 8);
  config.shape.experts_per_token = keys.size_or("num_experts_per_tok", 2);
  config.options.router_loss = keys.number_or("router_aux_loss_coef", kUsualRouterLoss, 0, 1e30);
  if (keys.has("sliding_window")) keys.refuse("sliding_window", "only null");
  if (keys.number_or("router_jitter_noise", 0, 0, 1) > 0) {
    keys.refuse("router_jitter_noise", "only 0");
  }
}

bool is_architecture(const Keys& keys, std::string_view architecture, std::string_view type) {
  const std::string first = keys.first_of("architectures");
  return first.empty() ? keys.text_or("model_type", "") == type : first == architecture;
}

// Attention to the last tokens only, where a text may be longer than that.
void refuse_window(const Keys& keys, plan::Count positions) {
  if (!keys.flag_or("use_sliding_window", true) || !keys.has("sliding_window")) return;
  if (keys.size("sliding_window") >= positions) return;
  keys.refuse("sliding_window",
              fmt::format("only null, or {} (max_position_embeddings) and more", positions));
}

// Mistral's and Qwen2's as well, and Mixtral's, which has experts besides.
void read_llama(const Keys& keys, HuggingFaceConfig& config) {
  plan::ModelShape& shape = config.shape;
  shape.vocabulary = keys.size("vocab_size");
  shape.positions = keys.size_or("max_position_embeddings", shape.positions);
  shape.hidden = keys.size("hidden_size");
  shape.layers = keys.size("num_hidden_layers");
  shape.heads = keys.size("num_attention_heads");
  shape.kv_heads = keys.size_or("num_key_value_heads", shape.heads);
  shape.feed_forward = keys.size("intermediate_size");
  shape.head = keys.flag_or("tie_word_embeddings", false) ? Head::kTied : Head::kOwn;
  keys.only_text("hidden_act", {"silu", "swish"});
  keys.only("attention_bias", false);
  keys.only("mlp_bias", false);
  shape.qkv_biases = is_architecture(keys, "Qwen2ForCausalLM", "qwen2");
  if (shape.qkv_biases || is_architecture(keys, "MistralForCausalLM", "mistral")) {
    refuse_window(keys, shape.positions);
  }
  if (shape.family == Family::kMixtral) read_experts(keys, config);
  if (keys.has("head_dim")) shape.head_size = keys.size("head_dim");
  plan::check(shape);
  const bool mixes = shape.family == Family::kMixtral;
  config.options.epsilon =
      static_cast<float>(keys.number_or("rms_norm_eps", usual_epsilon(shape.family), 1e-30, 1));
  read_rotary(keys, mixes ? 1e6 : 1e4, config);
  if (keys.number_or("attention_dropout", 0, 0, 1) > 0) {
    config.notices.emplace_back(
        "attention_dropout is ignored: it applies to attention alone, but model.dropout to all "
        "branches");
  }
}

void read_bert(const Keys& keys, HuggingFaceConfig& config) {
  plan::ModelShape& shape = config.shape;
  shape.vocabulary = keys.size("vocab_size");
  shape.positions = keys.size_or("max_position_embeddings", shape.positions);
  shape.hidden = keys.size("hidden_size");
  shape.layers = keys.size("num_hidden_layers");
  shape.heads = shape.kv_heads = keys.size("num_attention_heads");
  shape.feed_forward = keys.size("intermediate_size");
  shape.head = Head::kMaskedLanguage;
  keys.only_text("hidden_act", {"gelu"});
  keys.only_text("position_embedding_type", {"absolute"});
  keys.only("is_decoder", false);
  keys.only("add_cross_attention", false);
  keys.only("tie_word_embeddings", true);
  if (keys.size_or("type_vocab_size", kTypesOfBert) != kTypesOfBert) {
    keys.refuse("type_vocab_size", "only 2");
  }
  config.options.epsilon = static_cast<float>(keys.number_or("layer_norm_eps", 1e-12, 1e-30, 1));
  read_dropout(keys, {"hidden_dropout_prob", "attention_probs_dropout_prob"}, config);
}

}  // namespace

HuggingFaceConfig parse_hugging_face_config(std::string_view text, std::string_view source) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    fail(ErrorCode::kProtocol, "{} is not valid JSON: {}", source, error.what());
  }
  if (!json.is_object()) fail(ErrorCode::kProtocol, "{} is not a JSON object", source);
  const Keys keys(json, source);
  const Family family = family_of(keys);
  HuggingFaceConfig config;
  config.shape = plan::usual_shape(family);
  switch (family) {
    case Family::kGpt2:
      read_gpt2(keys, config);
      break;
    case Family::kLlama:
    case Family::kMixtral:
      read_llama(keys, config);
      break;
    case Family::kBert:
      read_bert(keys, config);
      break;
  }
  config.shape.name =
      fmt::format("{} of {} x {}", plan::name(family), config.shape.layers, config.shape.hidden);
  plan::check(config.shape);
  return config;
}

}  // namespace lockstep::nn
