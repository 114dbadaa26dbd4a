#include <nlohmann/json.hpp>

#include "lockstep/base/text/number.h"
#include "lockstep/nn/hugging_face/config.h"

namespace lockstep::nn {
namespace {

using plan::Family;
using plan::Head;
using Json = nlohmann::ordered_json;

Json or_null(const std::optional<std::int64_t>& token) { return token ? Json(*token) : Json(); }

std::string_view torch_name(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    default:
      return "float32";
  }
}

Json gpt2_json(const plan::ModelShape& shape, double epsilon, const ModelOptions& options) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", shape.vocabulary},
          {"n_positions", shape.positions},
          {"n_embd", shape.hidden},
          {"n_layer", shape.layers},
          {"n_head", shape.heads},
          {"n_inner", shape.feed_forward},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", epsilon},
          {"resid_pdrop", options.dropout},
          {"embd_pdrop", options.dropout},
          {"attn_pdrop", options.dropout},
          {"tie_word_embeddings", shape.head == Head::kTied}};
}

Json rope_json(double theta, const ops::RotaryScaling& scaling) {
  Json json = {{"rope_theta", theta}};
  if (scaling.factor == 1) {
    json["rope_type"] = "default";
    return json;
  }
  const bool linear = scaling.original_positions == 0;
  json["rope_type"] = linear ? "linear" : "llama3";
  json["factor"] = scaling.factor;
  if (linear) return json;
  json["original_max_position_embeddings"] = static_cast<std::int64_t>(scaling.original_positions);
  json["low_freq_factor"] = scaling.low_turns;
  json["high_freq_factor"] = scaling.high_turns;
  return json;
}

// With the scaling where older versions read it.
void add_scaling(Json& json) {
  const Json& rope = json["rope_parameters"];
  if (rope["rope_type"] != "default") json["rope_scaling"] = rope;
}

Json llama_json(const plan::ModelShape& shape, double epsilon, const ModelOptions& options) {
  const double theta = as_written(options.theta);
  Json json = {{"architectures", {"LlamaForCausalLM"}},
               {"model_type", "llama"},
               {"vocab_size", shape.vocabulary},
               {"max_position_embeddings", shape.positions},
               {"hidden_size", shape.hidden},
               {"num_hidden_layers", shape.layers},
               {"num_attention_heads", shape.heads},
               {"num_key_value_heads", shape.kv_heads},
               {"head_dim", shape.head_width()},
               {"intermediate_size", shape.feed_forward},
               {"hidden_act", "silu"},
               {"rms_norm_eps", epsilon},
               {"rope_theta", theta},  // older versions read this, newer ones the next
               {"rope_parameters", rope_json(theta, options.scaling)},
               {"attention_bias", false},
               {"attention_dropout", 0.0},
               {"mlp_bias", false},
               {"tie_word_embeddings", shape.head == Head::kTied}};
  add_scaling(json);
  if (!shape.qkv_biases) return json;
  json["architectures"] = {"Qwen2ForCausalLM"};
  json["model_type"] = "qwen2";
  json.erase("attention_bias");
  json.erase("mlp_bias");
  json["use_sliding_window"] = false;
  return json;
}

Json mixtral_json(const plan::ModelShape& shape, double epsilon, const ModelOptions& options) {
  Json json = llama_json(shape, epsilon, options);
  json["architectures"] = {"MixtralForCausalLM"};
  json["model_type"] = "mixtral";
  json.erase("attention_bias");
  json.erase("mlp_bias");
  json["num_local_experts"] = shape.experts;
  json["num_experts_per_tok"] = shape.experts_per_token;
  json["router_aux_loss_coef"] = options.router_loss;
  json["output_router_logits"] = options.router_loss > 0;
  json["sliding_window"] = nullptr;
  return json;
}

Json bert_json(const plan::ModelShape& shape, double epsilon, const ModelOptions& options) {
  return {{"architectures", {"BertForMaskedLM"}},
          {"model_type", "bert"},
          {"vocab_size", shape.vocabulary},
          {"max_position_embeddings", shape.positions},
          {"type_vocab_size", 2},
          {"hidden_size", shape.hidden},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", shape.heads},
          {"intermediate_size", shape.feed_forward},
          {"hidden_act", "gelu"},
          {"layer_norm_eps", epsilon},
          {"hidden_dropout_prob", options.dropout},
          {"attention_probs_dropout_prob", options.dropout},
          {"tie_word_embeddings", true}};
}

void add_tokens(Json& json, const SpecialTokens& tokens) {
  json["bos_token_id"] = or_null(tokens.begin);
  json["eos_token_id"] = or_null(tokens.end);
  json["pad_token_id"] = or_null(tokens.padding);
}

}  // namespace

std::string format_hugging_face_config(const plan::ModelShape& shape, const ModelOptions& options,
                                       DType dtype, const SpecialTokens& tokens) {
  const double epsilon = as_written(options.epsilon.value_or(usual_epsilon(shape.family)));
  Json json;
  switch (shape.family) {
    case Family::kGpt2:
      json = gpt2_json(shape, epsilon, options);
      break;
    case Family::kLlama:
      json = llama_json(shape, epsilon, options);
      break;
    case Family::kMixtral:
      json = mixtral_json(shape, epsilon, options);
      break;
    case Family::kBert:
      json = bert_json(shape, epsilon, options);
      break;
  }
  add_tokens(json, tokens);
  json["torch_dtype"] = torch_name(dtype);  // older versions read this, newer ones the next
  json["dtype"] = torch_name(dtype);
  json["made_by"] = kMadeBy;
  return json.dump(2) + "\n";
}

std::string format_generation_config(const SpecialTokens& tokens) {
  Json json = Json::object();
  add_tokens(json, tokens);
  return json.dump(2) + "\n";
}

}  // namespace lockstep::nn
