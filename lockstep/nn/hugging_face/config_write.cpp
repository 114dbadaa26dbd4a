#include <nlohmann/json.hpp>

#include "lockstep/base/text/number.h"
#include "lockstep/nn/hugging_face/architectures.h"
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

std::string_view activation_name(const plan::ModelShape& shape, const ModelOptions& options) {
  const ops::Activation used = options.activation.value_or(usual_activation(shape.family));
  for (const auto& [theirs, ours] : activation_names()) {
    if (ours == used) return theirs;
  }
  return "?";
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
          {"activation_function", activation_name(shape, options)},
          {"layer_norm_epsilon", epsilon},
          {"resid_pdrop", options.dropout},
          {"embd_pdrop", options.dropout},
          {"attn_pdrop", options.dropout},
          {"tie_word_embeddings", shape.head == Head::kTied}};
}

Json written(const std::vector<float>& values) {
  Json list = Json::array();
  for (const float value : values) list.push_back(as_written(value));
  return list;
}

Json rope_json(double theta, double share, const ModelOptions& options) {
  const ops::RotaryScaling& scaling = options.scaling;
  Json json = {{"rope_theta", theta}};
  if (share != 1) json["partial_rotary_factor"] = share;
  if (options.long_rope) {
    json["rope_type"] = "longrope";
    json["original_max_position_embeddings"] = options.long_rope->original_positions;
    json["short_factor"] = written(options.long_rope->short_factors);
    json["long_factor"] = written(options.long_rope->long_factors);
    json["attention_factor"] = as_written(options.long_rope->amplitude);
    return json;
  }
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

// Whether the amplitude is the one that follows from the lengths.
bool has_usual_amplitude(const plan::ModelShape& shape, const LongRope& rope) {
  const double factor =
      static_cast<double>(shape.positions) / static_cast<double>(rope.original_positions);
  return static_cast<float>(usual_amplitude(factor, rope.original_positions)) == rope.amplitude;
}

// With the scaling where older versions read it. Of longrope they allow these keys alone.
void add_scaling(Json& json, const plan::ModelShape& shape, const ModelOptions& options) {
  const Json rope = json["rope_parameters"];  // what is added moves the others
  if (rope["rope_type"] == "default") return;
  json["rope_scaling"] = rope;
  if (!options.long_rope || !has_usual_amplitude(shape, *options.long_rope)) return;
  json["rope_scaling"] = {{"type", "longrope"},
                          {"short_factor", rope["short_factor"]},
                          {"long_factor", rope["long_factor"]}};
}

// What llama_json() adds for classes with a window of attention.
void add_window(Json& json, const plan::ModelShape& shape, bool by_layer) {
  const bool has_window = shape.window > 0;
  json["sliding_window"] = has_window ? Json(shape.window) : Json();
  if (!by_layer) return;
  if (!shape.parts().alternating) {
    json["use_sliding_window"] = has_window;
    json["max_window_layers"] = has_window ? shape.unwindowed_layers : shape.layers;
  }
  json["layer_types"] = Json::array();
  for (plan::Count layer = 0; layer < shape.layers; ++layer) {
    json["layer_types"].push_back(shape.window_of(layer) > 0 ? "sliding_attention"
                                                             : "full_attention");
  }
}

double rotary_share_of(const plan::ModelShape& shape, const ModelOptions& options) {
  return options.rotary_share.value_or(shape.parts().rotary_share);
}

Json llama_json(const plan::ModelShape& shape, double epsilon, const ModelOptions& options) {
  const Architecture& architecture = architecture_for(shape);
  const double theta = as_written(options.theta);
  const double share = rotary_share_of(shape, options);
  Json json = {{"architectures", {architecture.name}},
               {"model_type", architecture.type},
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
               {"rope_parameters", rope_json(theta, share, options)},
               {"attention_dropout", 0.0},
               {"tie_word_embeddings", shape.head == Head::kTied}};
  add_scaling(json, shape, options);
  if (share != 1) json["partial_rotary_factor"] = share;
  if (architecture.windowed) add_window(json, shape, architecture.by_layer);
  if (architecture.type == "llama") json["attention_bias"] = json["mlp_bias"] = false;
  if (shape.family == Family::kQwen3) json["attention_bias"] = false;
  if (shape.family == Family::kPhi3) {
    json["original_max_position_embeddings"] =
        options.long_rope ? Json(options.long_rope->original_positions) : Json(shape.positions);
    json["resid_pdrop"] = json["embd_pdrop"] = options.dropout;
  }
  return json;
}

Json cap_or_null(double cap) { return cap > 0 ? Json(cap) : Json(); }

Json gemma2_json(const plan::ModelShape& shape, double epsilon, const ModelOptions& options) {
  Json json = llama_json(shape, epsilon, options);
  const plan::FamilyParts& parts = shape.parts();
  json["hidden_activation"] = json["hidden_act"] = "gelu_pytorch_tanh";
  json["attention_bias"] = false;
  json["query_pre_attn_scalar"] =
      shape.query_pre_attn_scalar > 0 ? shape.query_pre_attn_scalar : shape.head_width();
  json["attn_logit_softcapping"] =
      cap_or_null(options.attention_softcap.value_or(parts.attention_softcap));
  json["final_logit_softcapping"] =
      cap_or_null(options.logit_softcap.value_or(parts.logit_softcap));
  return json;
}

Json mixtral_json(const plan::ModelShape& shape, double epsilon, const ModelOptions& options) {
  Json json = llama_json(shape, epsilon, options);
  json["num_local_experts"] = shape.experts;
  json["num_experts_per_tok"] = shape.experts_per_token;
  json["router_aux_loss_coef"] = options.router_loss;
  json["output_router_logits"] = options.router_loss > 0;
  return json;
}

Json gpt_neox_json(const plan::ModelShape& shape, double epsilon, const ModelOptions& options) {
  const double theta = as_written(options.theta);
  const double share = rotary_share_of(shape, options);
  Json json = {
      {"architectures", {"GPTNeoXForCausalLM"}},
      {"model_type", "gpt_neox"},
      {"vocab_size", shape.vocabulary},
      {"max_position_embeddings", shape.positions},
      {"hidden_size", shape.hidden},
      {"num_hidden_layers", shape.layers},
      {"num_attention_heads", shape.heads},
      {"intermediate_size", shape.feed_forward},
      {"hidden_act", activation_name(shape, options)},
      {"layer_norm_eps", epsilon},
      {"rotary_emb_base", theta},  // older versions read this and the next
      {"rotary_pct", share},
      {"rope_parameters", rope_json(theta, share, options)},
      {"use_parallel_residual", options.parallel_residual.value_or(shape.parts().parallel)},
      {"attention_bias", true},
      {"hidden_dropout", options.dropout},
      {"attention_dropout", options.dropout},
      {"tie_word_embeddings", shape.head == Head::kTied}};
  add_scaling(json, shape, options);
  return json;
}

Json t5_json(const plan::ModelShape& shape, double epsilon, const ModelOptions& options) {
  return {{"architectures", {"T5ForConditionalGeneration"}},
          {"model_type", "t5"},
          {"is_encoder_decoder", true},
          {"vocab_size", shape.vocabulary},
          {"n_positions", shape.positions},
          {"d_model", shape.hidden},
          {"d_kv", shape.head_width()},
          {"d_ff", shape.feed_forward},
          {"num_layers", shape.layers},
          {"num_decoder_layers", shape.decoder_layers},
          {"num_heads", shape.heads},
          {"relative_attention_num_buckets", shape.relative_buckets},
          {"relative_attention_max_distance", shape.relative_distance},
          {"feed_forward_proj", shape.parts().gated ? "gated-gelu" : "relu"},
          {"layer_norm_epsilon", epsilon},
          {"dropout_rate", options.dropout},
          {"tie_word_embeddings", shape.head == Head::kTied}};
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
  if (tokens.decoder_start) json["decoder_start_token_id"] = *tokens.decoder_start;
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
    case Family::kQwen3:
    case Family::kPhi3:
      json = llama_json(shape, epsilon, options);
      break;
    case Family::kGemma2:
      json = gemma2_json(shape, epsilon, options);
      break;
    case Family::kMixtral:
      json = mixtral_json(shape, epsilon, options);
      break;
    case Family::kGptNeox:
      json = gpt_neox_json(shape, epsilon, options);
      break;
    case Family::kT5:
    case Family::kT5V11:
      json = t5_json(shape, epsilon, options);
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
