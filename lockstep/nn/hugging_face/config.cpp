#include "lockstep/nn/hugging_face/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/nn/hugging_face/architectures.h"

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
  // Of the keys for which null says something.
  bool null(const char* key) const { return json_.contains(key) && json_[key].is_null(); }

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
  // The same, where 0 is allowed.
  plan::Count size_or_zero(const char* key, plan::Count otherwise) const {
    return has(key) && json_[key] == 0 ? 0 : size_or(key, otherwise);
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
  // The strings of an array; none where there is no such key.
  std::vector<std::string> texts(const char* key) const {
    if (!has(key)) return {};
    const Json& value = json_[key];
    const auto is_text = [](const Json& one) { return one.is_string(); };
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_text)) {
      reject(key, "an array of strings");
    }
    return value.get<std::vector<std::string>>();
  }
  // The positive numbers of an array, which has to be there.
  std::vector<float> numbers(const char* key) const {
    if (!has(key)) fail(ErrorCode::kInvalidArgument, "{} has no '{}'", source_, key);
    const Json& value = json_[key];
    const auto is_factor = [](const Json& one) {
      return one.is_number() && one.get<double>() >= 1e-6 && one.get<double>() <= 1e9;
    };
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_factor)) {
      reject(key, "an array of positive numbers");
    }
    return value.get<std::vector<float>>();
  }
  // The first string of an array.
  std::string first_of(const char* key) const {
    const std::vector<std::string> all = texts(key);
    return all.empty() ? "" : all.front();
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

// The class that a config.json names, or by its type the usual one.
const Architecture& architecture_of(const Keys& keys) {
  const std::string name = keys.first_of("architectures");
  const std::string type = keys.text_or("model_type", "");
  std::vector<std::string_view> names;
  for (const Architecture& one : architectures()) {
    if (name.empty() ? one.type == type : one.name == name) return one;
    if (names.empty() || names.back() != one.name) names.push_back(one.name);
  }
  fail(ErrorCode::kUnsupported,
       "{} describes a '{}', which lockstep does not support; it supports {}", keys.source(),
       name.empty() ? type : name, fmt::join(names, ", "));
}

// One rate of dropout for all of a model's; says so where there are several.
void read_dropout(const Keys& keys, const std::vector<const char*>& names, double usual,
                  HuggingFaceConfig& config) {
  config.options.dropout = keys.number_or(names.front(), usual, 0, 0.99);
  for (const char* name : names) {
    const double other = keys.number_or(name, usual, 0, 0.99);
    if (other == config.options.dropout) continue;
    config.notices.push_back(
        fmt::format("{} = {} differs from {} = {}; model.dropout is the latter", name, other,
                    names.front(), config.options.dropout));
  }
}

constexpr double kUsualDropout = 0.1;  // of GPT-2, BERT and T5

ops::Activation read_activation(const Keys& keys, const char* key, const std::string& usual) {
  const std::string name = keys.text_or(key, usual);
  std::vector<std::string_view> known;
  for (const auto& [theirs, ours] : activation_names()) {
    if (theirs == name) return ours;
    known.push_back(theirs);
  }
  keys.refuse(key, fmt::format("only {}", fmt::join(known, ", ")));
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
  config.options.activation = read_activation(keys, "activation_function", "gelu_new");
  keys.only("scale_attn_weights", true);
  keys.only("scale_attn_by_inverse_layer_idx", false);
  keys.only("add_cross_attention", false);
  config.options.epsilon = static_cast<float>(keys.number_or("layer_norm_epsilon", 1e-5, 1e-30, 1));
  read_dropout(keys, {"resid_pdrop", "embd_pdrop", "attn_pdrop"}, kUsualDropout, config);
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

// As Phi-3 has it: with the length that the model was first trained with in this object or, in
// older files, beside it.
LongRope read_long_rope(const Keys& keys, const Keys& rotary, plan::Count positions) {
  LongRope rope;
  const char* const key = "original_max_position_embeddings";
  const plan::Count original = keys.size_or(key, rotary.size_or(key, positions));
  rope.original_positions = static_cast<std::int64_t>(original);
  rope.short_factors = rotary.numbers("short_factor");
  rope.long_factors = rotary.numbers("long_factor");
  const double longer = static_cast<double>(positions) / static_cast<double>(original);
  const double usual =
      usual_amplitude(rotary.number_or("factor", longer, 1e-6, 1e9), rope.original_positions);
  rope.amplitude = static_cast<float>(rotary.number_or("attention_factor", usual, 1e-6, 1e6));
  return rope;
}

// Rotary positions: one object in newer files, keys of the model in older ones.
struct RotaryKeys {
  const char* theta = "rope_theta";
  const char* share = "partial_rotary_factor";
  double usual_theta = 1e4;
};

void read_rotary(const Keys& keys, const RotaryKeys& older, HuggingFaceConfig& config) {
  double theta = keys.number_or(older.theta, older.usual_theta, 1, 1e30);
  const plan::FamilyParts& parts = config.shape.parts();
  double share = parts.partly_rotary ? keys.number_or(older.share, parts.rotary_share, 0, 1) : 1;
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    if (!keys.has(name)) continue;
    const Keys rotary = keys.object(name);
    const std::string type = rotary.text_or("rope_type", rotary.text_or("type", "default"));
    if (type == "linear" || type == "llama3") {
      config.options.scaling = read_scaling(rotary, type == "linear");
    } else if (type == "longrope" || type == "su") {
      config.options.long_rope = read_long_rope(keys, rotary, config.shape.positions);
    } else if (type != "default") {
      keys.refuse(name, "only the rope_types \"default\", \"linear\", \"llama3\" and \"longrope\"");
    }
    theta = rotary.number_or("rope_theta", theta, 1, 1e30);
    share = rotary.number_or("partial_rotary_factor", share, 0, 1);
    if (share != 1 && !parts.partly_rotary) {
      keys.refuse(name, "only a partial_rotary_factor of 1");
    }
  }
  config.options.theta = static_cast<float>(theta);
  config.options.rotary_share = share;
  const std::int64_t turned = rotary_width(config.shape, config.options);  // or throws
  if (!config.options.long_rope) return;
  const std::int64_t width = static_cast<std::int64_t>(config.shape.head_width());
  check_long_rope(*config.options.long_rope, turned > 0 ? turned : width);
}

void read_experts(const Keys& keys, HuggingFaceConfig& config) {
  config.shape.experts = keys.size_or("num_local_experts", 8);
  config.shape.experts_per_token = keys.size_or("num_experts_per_tok", 2);
  config.options.router_loss = keys.number_or("router_aux_loss_coef", kUsualRouterLoss, 0, 1e30);
  if (keys.number_or("router_jitter_noise", 0, 0, 1) > 0) {
    keys.refuse("router_jitter_noise", "only 0");
  }
}

// Attention to the last tokens only, where a text may be longer than that; in Qwen's families of
// the layers from some on.
void read_window(const Keys& keys, const Architecture& architecture, HuggingFaceConfig& config) {
  plan::ModelShape& shape = config.shape;
  const bool chooses = keys.has("use_sliding_window");
  const bool usually = !architecture.by_layer;  // Qwen's ask for it
  if (!keys.flag_or("use_sliding_window", usually) || !keys.has("sliding_window")) return;
  const plan::Count window = keys.size("sliding_window");
  if (window >= shape.positions) return;
  plan::Count first = chooses ? keys.size_or_zero("max_window_layers", 28) : 0;
  if (const std::vector<std::string> types = keys.texts("layer_types"); !types.empty()) {
    const auto is_windowed = [](const std::string& type) { return type == "sliding_attention"; };
    const auto begin = std::find_if(types.begin(), types.end(), is_windowed);
    if (types.size() != shape.layers || !std::all_of(begin, types.end(), is_windowed)) {
      keys.refuse("layer_types",
                  "only layers of \"full_attention\" before all of "
                  "\"sliding_attention\"");
    }
    first = static_cast<plan::Count>(begin - types.begin());
  }
  if (first >= shape.layers) return;
  shape.window = window;
  shape.unwindowed_layers = first;
}

// Layers with windows in turn, the first with one; or none has one.
void read_alternating_window(const Keys& keys, HuggingFaceConfig& config) {
  plan::ModelShape& shape = config.shape;
  const std::vector<std::string> types = keys.texts("layer_types");
  const auto is_full = [](const std::string& type) { return type == "full_attention"; };
  if (!types.empty() && std::all_of(types.begin(), types.end(), is_full)) return;
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    const char* const usual = layer % 2 == 0 ? "sliding_attention" : "full_attention";
    if (types.size() == shape.layers && types[layer] == usual) continue;
    keys.refuse("layer_types",
                "only layers of \"sliding_attention\" and \"full_attention\" in turn, or all of "
                "\"full_attention\"");
  }
  const plan::Count window = keys.null("sliding_window") ? 0 : keys.size_or("sliding_window", 4096);
  if (window < shape.positions) shape.window = window;
}

// What Gemma 2 has besides.
void read_gemma2(const Keys& keys, HuggingFaceConfig& config) {
  plan::ModelShape& shape = config.shape;
  const auto cap_of = [&](const char* key, double usual) {
    return keys.null(key) ? 0 : keys.number_or(key, usual, 1e-3, 1e6);
  };
  const plan::FamilyParts& parts = shape.parts();
  config.options.attention_softcap = cap_of("attn_logit_softcapping", parts.attention_softcap);
  config.options.logit_softcap = cap_of("final_logit_softcapping", parts.logit_softcap);
  const plan::Count scalar = keys.size_or("query_pre_attn_scalar", 256);
  if (scalar != shape.head_width()) shape.query_pre_attn_scalar = scalar;
  keys.only("use_bidirectional_attention", false);
}

// Llama's and all that are like it: Mistral's, Qwen's, Phi-3's, Gemma 2's, and Mixtral's, which has
// experts.
void read_llama(const Keys& keys, const Architecture& architecture, HuggingFaceConfig& config) {
  plan::ModelShape& shape = config.shape;
  shape.vocabulary = keys.size("vocab_size");
  shape.positions = keys.size_or("max_position_embeddings", shape.positions);
  shape.hidden = keys.size("hidden_size");
  shape.layers = keys.size("num_hidden_layers");
  shape.heads = keys.size("num_attention_heads");
  shape.kv_heads = keys.size_or("num_key_value_heads", shape.heads);
  shape.feed_forward = keys.size("intermediate_size");
  const bool gemma2 = shape.family == Family::kGemma2;
  shape.head = keys.flag_or("tie_word_embeddings", gemma2) ? Head::kTied : Head::kOwn;
  if (gemma2) {
    keys.only_text("hidden_activation", {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"});
  } else {
    keys.only_text("hidden_act", {"silu", "swish"});
  }
  keys.only("attention_bias", false);
  keys.only("mlp_bias", false);
  shape.qkv_biases = architecture.qkv_biases;
  if (shape.parts().alternating) {
    read_alternating_window(keys, config);
  } else if (architecture.windowed) {
    read_window(keys, architecture, config);
  }
  if (shape.family == Family::kMixtral) read_experts(keys, config);
  if (keys.has("head_dim")) shape.head_size = keys.size("head_dim");
  if (shape.family == Family::kQwen3 && !keys.has("head_dim")) shape.head_size = 128;
  if (gemma2 && !keys.has("head_dim")) shape.head_size = 256;
  plan::check(shape);
  if (gemma2) read_gemma2(keys, config);
  const bool mixes = shape.family == Family::kMixtral;
  config.options.epsilon =
      static_cast<float>(keys.number_or("rms_norm_eps", usual_epsilon(shape.family), 1e-30, 1));
  read_rotary(keys, {.usual_theta = mixes ? 1e6 : 1e4}, config);
  if (shape.family == Family::kPhi3) read_dropout(keys, {"resid_pdrop", "embd_pdrop"}, 0, config);
  if (keys.number_or("attention_dropout", 0, 0, 1) > 0) {
    config.notices.emplace_back(
        "attention_dropout is ignored: it applies to attention alone, but model.dropout to all "
        "branches");
  }
}

void read_gpt_neox(const Keys& keys, HuggingFaceConfig& config) {
  plan::ModelShape& shape = config.shape;
  shape.vocabulary = keys.size("vocab_size");
  shape.positions = keys.size_or("max_position_embeddings", shape.positions);
  shape.hidden = keys.size("hidden_size");
  shape.layers = keys.size("num_hidden_layers");
  shape.heads = shape.kv_heads = keys.size("num_attention_heads");
  shape.feed_forward = keys.size("intermediate_size");
  shape.head = keys.flag_or("tie_word_embeddings", false) ? Head::kTied : Head::kOwn;
  plan::check(shape);
  config.options.activation = read_activation(keys, "hidden_act", "gelu");
  keys.only("attention_bias", true);
  config.options.parallel_residual = keys.flag_or("use_parallel_residual", true);
  config.options.epsilon = static_cast<float>(keys.number_or("layer_norm_eps", 1e-5, 1e-30, 1));
  read_rotary(keys, {.theta = "rotary_emb_base", .share = "rotary_pct"}, config);
  read_dropout(keys, {"hidden_dropout", "attention_dropout"}, 0, config);
}

// Of both kinds: what is between the matrices of feed-forward networks says which.
void read_t5(const Keys& keys, HuggingFaceConfig& config) {
  constexpr const char* kProjection = "feed_forward_proj";
  keys.only_text(kProjection, {"relu", "gated-gelu"});
  const bool gated = keys.text_or(kProjection, "relu") == "gated-gelu";
  config.shape = plan::usual_shape(gated ? Family::kT5V11 : Family::kT5);
  plan::ModelShape& shape = config.shape;
  shape.vocabulary = keys.size("vocab_size");
  shape.positions = keys.size_or("n_positions", shape.positions);
  shape.hidden = keys.size("d_model");
  shape.layers = keys.size("num_layers");
  shape.decoder_layers = keys.size_or("num_decoder_layers", shape.layers);
  shape.heads = shape.kv_heads = keys.size("num_heads");
  shape.head_size = keys.size_or("d_kv", 64);
  shape.feed_forward = keys.size("d_ff");
  shape.relative_buckets = keys.size_or("relative_attention_num_buckets", 32);
  shape.relative_distance = keys.size_or("relative_attention_max_distance", 128);
  // A head that is tied scales its input. Newer files say so by a key of its own; "true" is what
  // they have for the other key whatever the head is.
  const bool tied = keys.flag_or("tie_word_embeddings", true);
  shape.head = keys.flag_or("scale_decoder_outputs", tied) ? Head::kTied : Head::kOwn;
  config.options.epsilon = static_cast<float>(keys.number_or("layer_norm_epsilon", 1e-6, 1e-30, 1));
  config.options.dropout = keys.number_or("dropout_rate", kUsualDropout, 0, 0.99);
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
  read_dropout(keys, {"hidden_dropout_prob", "attention_probs_dropout_prob"}, kUsualDropout,
               config);
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
  const Architecture& architecture = architecture_of(keys);
  const Family family = architecture.family;
  HuggingFaceConfig config;
  config.shape = plan::usual_shape(family);
  switch (family) {
    case Family::kGpt2:
      read_gpt2(keys, config);
      break;
    case Family::kLlama:
    case Family::kMixtral:
    case Family::kQwen3:
    case Family::kPhi3:
    case Family::kGemma2:
      read_llama(keys, architecture, config);
      break;
    case Family::kGptNeox:
      read_gpt_neox(keys, config);
      break;
    case Family::kT5:
    case Family::kT5V11:
      read_t5(keys, config);
      break;
    case Family::kBert:
      read_bert(keys, config);
      break;
  }
  config.shape.name = fmt::format("{} of {} x {}", plan::name(config.shape.family),
                                  config.shape.layers, config.shape.hidden);
  plan::check(config.shape);
  return config;
}

}  // namespace lockstep::nn
