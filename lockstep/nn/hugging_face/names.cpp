#include "lockstep/nn/hugging_face/names.h"

#include <fmt/format.h>

#include <optional>

#include "lockstep/base/error.h"

namespace lockstep::nn {
namespace {

using plan::Family;

// One parameter, or one of every layer: then both sides stand behind the layer's name. A star is
// the number of an expert.
struct Rule {
  std::string_view ours;
  std::vector<std::string_view> theirs;
  bool transposed = false;
  bool by_head = false;
};

struct Names {
  std::string_view model;  // in front of all that files of the bare model lack
  std::string_view layer;  // in front of a layer's number
  std::vector<Rule> outside;
  std::vector<Rule> layers;
  // With two stacks the above are of the encoder, and this is of the decoder.
  std::string_view decoder_layer = {};
  std::vector<Rule> decoder_layers = {};
};

const Names& names_of(Family family) {
  static const Names kGpt2{.model = "transformer.",
                           .layer = "transformer.h.",
                           .outside = {{"embedding.tokens", {"transformer.wte.weight"}},
                                       {"embedding.positions", {"transformer.wpe.weight"}},
                                       {"head.norm.gain", {"transformer.ln_f.weight"}},
                                       {"head.norm.bias", {"transformer.ln_f.bias"}},
                                       {"head.logits.weight", {"lm_head.weight"}}},
                           .layers = {{"norm1.gain", {"ln_1.weight"}},
                                      {"norm1.bias", {"ln_1.bias"}},
                                      {"attention.qkv.weight", {"attn.c_attn.weight"}, true},
                                      {"attention.qkv.bias", {"attn.c_attn.bias"}},
                                      {"attention.projection.weight", {"attn.c_proj.weight"}, true},
                                      {"attention.projection.bias", {"attn.c_proj.bias"}},
                                      {"norm2.gain", {"ln_2.weight"}},
                                      {"norm2.bias", {"ln_2.bias"}},
                                      {"mlp.up.weight", {"mlp.c_fc.weight"}, true},
                                      {"mlp.up.bias", {"mlp.c_fc.bias"}},
                                      {"mlp.down.weight", {"mlp.c_proj.weight"}, true},
                                      {"mlp.down.bias", {"mlp.c_proj.bias"}}}};
  static const Names kLlama{
      .model = "model.",
      .layer = "model.layers.",
      .outside = {{"embedding.tokens", {"model.embed_tokens.weight"}},
                  {"head.norm.gain", {"model.norm.weight"}},
                  {"head.logits.weight", {"lm_head.weight"}}},
      .layers = {
          {"norm1.gain", {"input_layernorm.weight"}},
          {"attention.qkv.weight",
           {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
          {"attention.qkv.bias",
           {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}},
          {"attention.projection.weight", {"self_attn.o_proj.weight"}},
          {"norm2.gain", {"post_attention_layernorm.weight"}},
          {"mlp.gate_up.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
          {"mlp.down.weight", {"mlp.down_proj.weight"}}}};
  static const Names kBert{
      .model = "bert.",
      .layer = "bert.encoder.layer.",
      .outside = {{"embedding.tokens", {"bert.embeddings.word_embeddings.weight"}},
                  {"embedding.positions", {"bert.embeddings.position_embeddings.weight"}},
                  {"embedding.types", {"bert.embeddings.token_type_embeddings.weight"}},
                  {"embedding.norm.gain", {"bert.embeddings.LayerNorm.weight"}},
                  {"embedding.norm.bias", {"bert.embeddings.LayerNorm.bias"}},
                  {"head.dense.weight", {"cls.predictions.transform.dense.weight"}},
                  {"head.dense.bias", {"cls.predictions.transform.dense.bias"}},
                  {"head.norm.gain", {"cls.predictions.transform.LayerNorm.weight"}},
                  {"head.norm.bias", {"cls.predictions.transform.LayerNorm.bias"}},
                  {"head.logits.bias", {"cls.predictions.bias"}}},
      .layers = {
          {"attention.qkv.weight",
           {"attention.self.query.weight", "attention.self.key.weight",
            "attention.self.value.weight"}},
          {"attention.qkv.bias",
           {"attention.self.query.bias", "attention.self.key.bias", "attention.self.value.bias"}},
          {"attention.projection.weight", {"attention.output.dense.weight"}},
          {"attention.projection.bias", {"attention.output.dense.bias"}},
          {"norm1.gain", {"attention.output.LayerNorm.weight"}},
          {"norm1.bias", {"attention.output.LayerNorm.bias"}},
          {"mlp.up.weight", {"intermediate.dense.weight"}},
          {"mlp.up.bias", {"intermediate.dense.bias"}},
          {"mlp.down.weight", {"output.dense.weight"}},
          {"mlp.down.bias", {"output.dense.bias"}},
          {"norm2.gain", {"output.LayerNorm.weight"}},
          {"norm2.bias", {"output.LayerNorm.bias"}}}};
  static const Names kMixtral{
      .model = "model.",
      .layer = "model.layers.",
      .outside = kLlama.outside,
      .layers = {
          {"norm1.gain", {"input_layernorm.weight"}},
          {"attention.qkv.weight",
           {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
          {"attention.projection.weight", {"self_attn.o_proj.weight"}},
          {"norm2.gain", {"post_attention_layernorm.weight"}},
          {"mlp.router.weight", {"block_sparse_moe.gate.weight"}},
          {"mlp.experts.*.gate_up.weight",
           {"block_sparse_moe.experts.*.w1.weight", "block_sparse_moe.experts.*.w3.weight"}},
          {"mlp.experts.*.down.weight", {"block_sparse_moe.experts.*.w2.weight"}}}};
  static const Names kQwen3 = [] {
    Names names = kLlama;
    names.layers.push_back({"attention.query_norm.gain", {"self_attn.q_norm.weight"}});
    names.layers.push_back({"attention.key_norm.gain", {"self_attn.k_norm.weight"}});
    return names;
  }();
  static const Names kPhi3{.model = "model.",
                           .layer = "model.layers.",
                           .outside = kLlama.outside,
                           .layers = {{"norm1.gain", {"input_layernorm.weight"}},
                                      {"attention.qkv.weight", {"self_attn.qkv_proj.weight"}},
                                      {"attention.projection.weight", {"self_attn.o_proj.weight"}},
                                      {"norm2.gain", {"post_attention_layernorm.weight"}},
                                      {"mlp.gate_up.weight", {"mlp.gate_up_proj.weight"}},
                                      {"mlp.down.weight", {"mlp.down_proj.weight"}}}};
  static const Names kGemma2 = [] {
    Names names = kLlama;
    names.layers.push_back({"norm3.gain", {"pre_feedforward_layernorm.weight"}});
    names.layers.push_back({"norm4.gain", {"post_feedforward_layernorm.weight"}});
    return names;
  }();
  static const Names kGptNeox{
      .model = "gpt_neox.",
      .layer = "gpt_neox.layers.",
      .outside = {{"embedding.tokens", {"gpt_neox.embed_in.weight"}},
                  {"head.norm.gain", {"gpt_neox.final_layer_norm.weight"}},
                  {"head.norm.bias", {"gpt_neox.final_layer_norm.bias"}},
                  {"head.logits.weight", {"embed_out.weight"}}},
      .layers = {{"norm1.gain", {"input_layernorm.weight"}},
                 {"norm1.bias", {"input_layernorm.bias"}},
                 {"attention.qkv.weight", {"attention.query_key_value.weight"}, false, true},
                 {"attention.qkv.bias", {"attention.query_key_value.bias"}, false, true},
                 {"attention.projection.weight", {"attention.dense.weight"}},
                 {"attention.projection.bias", {"attention.dense.bias"}},
                 {"norm2.gain", {"post_attention_layernorm.weight"}},
                 {"norm2.bias", {"post_attention_layernorm.bias"}},
                 {"mlp.up.weight", {"mlp.dense_h_to_4h.weight"}},
                 {"mlp.up.bias", {"mlp.dense_h_to_4h.bias"}},
                 {"mlp.down.weight", {"mlp.dense_4h_to_h.weight"}},
                 {"mlp.down.bias", {"mlp.dense_4h_to_h.bias"}}}};
  static const Names kT5{
      .model = "transformer.",
      .layer = "encoder.block.",
      .outside = {{"source.tokens", {"shared.weight"}},
                  {"encoder.bias.table",
                   {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}},
                  {"target.encoder_norm.gain", {"encoder.final_layer_norm.weight"}},
                  {"decoder.bias.table",
                   {"decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}},
                  {"head.norm.gain", {"decoder.final_layer_norm.weight"}},
                  {"head.logits.weight", {"lm_head.weight"}}},
      .layers = {{"norm1.gain", {"layer.0.layer_norm.weight"}},
                 {"attention.qkv.weight",
                  {"layer.0.SelfAttention.q.weight", "layer.0.SelfAttention.k.weight",
                   "layer.0.SelfAttention.v.weight"}},
                 {"attention.projection.weight", {"layer.0.SelfAttention.o.weight"}},
                 {"norm2.gain", {"layer.1.layer_norm.weight"}},
                 {"mlp.up.weight", {"layer.1.DenseReluDense.wi.weight"}},
                 {"mlp.gate_up.weight",
                  {"layer.1.DenseReluDense.wi_0.weight", "layer.1.DenseReluDense.wi_1.weight"}},
                 {"mlp.down.weight", {"layer.1.DenseReluDense.wo.weight"}}},
      .decoder_layer = "decoder.block.",
      .decoder_layers = {
          {"norm1.gain", {"layer.0.layer_norm.weight"}},
          {"attention.qkv.weight",
           {"layer.0.SelfAttention.q.weight", "layer.0.SelfAttention.k.weight",
            "layer.0.SelfAttention.v.weight"}},
          {"attention.projection.weight", {"layer.0.SelfAttention.o.weight"}},
          {"norm2.gain", {"layer.1.layer_norm.weight"}},
          {"cross.query.weight", {"layer.1.EncDecAttention.q.weight"}},
          {"cross.key_value.weight",
           {"layer.1.EncDecAttention.k.weight", "layer.1.EncDecAttention.v.weight"}},
          {"cross.projection.weight", {"layer.1.EncDecAttention.o.weight"}},
          {"norm3.gain", {"layer.2.layer_norm.weight"}},
          {"mlp.up.weight", {"layer.2.DenseReluDense.wi.weight"}},
          {"mlp.gate_up.weight",
           {"layer.2.DenseReluDense.wi_0.weight", "layer.2.DenseReluDense.wi_1.weight"}},
          {"mlp.down.weight", {"layer.2.DenseReluDense.wo.weight"}}}};
  switch (family) {
    case Family::kT5:
    case Family::kT5V11:
      return kT5;
    case Family::kGpt2:
      return kGpt2;
    case Family::kLlama:
      return kLlama;
    case Family::kMixtral:
      return kMixtral;
    case Family::kQwen3:
      return kQwen3;
    case Family::kPhi3:
      return kPhi3;
    case Family::kGptNeox:
      return kGptNeox;
    case Family::kGemma2:
      return kGemma2;
    case Family::kBert:
      break;
  }
  return kBert;
}

// What checkpoints of transformers hold besides parameters: masks and tables that are computed,
// heads of other tasks, the second name of a tied table.
bool is_dispensable(Family family, std::string_view name) {
  switch (family) {
    case Family::kGpt2:
      return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
    case Family::kGptNeox:
      return name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias") ||
             name.ends_with(".rotary_emb.inv_freq");
    case Family::kLlama:
    case Family::kMixtral:
    case Family::kQwen3:
    case Family::kPhi3:
    case Family::kGemma2:
      return name.ends_with(".rotary_emb.inv_freq");
    case Family::kT5:
    case Family::kT5V11:
      // The last one was never used.
      return name == "encoder.embed_tokens.weight" || name == "decoder.embed_tokens.weight" ||
             name.ends_with(".EncDecAttention.relative_attention_bias.weight");
    case Family::kBert:
      break;
  }
  return name.ends_with("embeddings.position_ids") || name.starts_with("bert.pooler.") ||
         name.starts_with("pooler.") || name.starts_with("cls.seq_relationship.") ||
         name.starts_with("cls.predictions.decoder.");
}

// The number of the expert that a parameter is of; empty: of none.
std::string expert_of(std::string_view parameter) {
  constexpr std::string_view kExperts = "mlp.experts.";
  if (!parameter.starts_with(kExperts)) return "";
  return std::string(
      parameter.substr(kExperts.size(), parameter.find('.', kExperts.size()) - kExperts.size()));
}

// The name with the number in place of the star.
std::string with_expert(std::string_view name, std::string_view number) {
  std::string result(name);
  if (const auto star = result.find('*'); star != std::string::npos) {
    result.replace(star, 1, number);
  }
  return result;
}

// A parameter's rules, what stands in front of all of their names, and what is left of its own.
struct NamedRules {
  const std::vector<Rule>& rules;
  std::string prefix;
  std::string_view rest;
};

NamedRules rules_for(const Names& names, std::string_view parameter) {
  const auto of_layer = [&](std::string_view ours, std::string_view theirs,
                            const std::vector<Rule>& rules) -> std::optional<NamedRules> {
    const bool numbered = parameter.starts_with(ours) && parameter.size() > ours.size() &&
                          parameter[ours.size()] >= '0' && parameter[ours.size()] <= '9';
    if (!numbered) return std::nullopt;
    const auto dot = parameter.find('.', ours.size());
    const std::string_view number = parameter.substr(ours.size(), dot - ours.size());
    return NamedRules{rules, fmt::format("{}{}.", theirs, number),
                      dot == std::string_view::npos ? "" : parameter.substr(dot + 1)};
  };
  const bool two_stacks = !names.decoder_layers.empty();
  if (const auto place = of_layer(two_stacks ? "encoder." : "layer.", names.layer, names.layers)) {
    return *place;
  }
  if (two_stacks) {
    if (const auto place = of_layer("decoder.", names.decoder_layer, names.decoder_layers)) {
      return *place;
    }
  }
  return {names.outside, "", parameter};
}

}  // namespace

ForeignTensors hugging_face_tensors(Family family, std::string_view parameter) {
  const auto& [rules, prefix, rest] = rules_for(names_of(family), parameter);
  const std::string number = expert_of(rest);
  for (const Rule& rule : rules) {
    if (with_expert(rule.ours, number) != rest) continue;
    ForeignTensors found{.names = {}, .transposed = rule.transposed, .by_head = rule.by_head};
    for (const std::string_view theirs : rule.theirs) {
      found.names.push_back(fmt::format("{}{}", prefix, with_expert(theirs, number)));
    }
    return found;
  }
  fail(ErrorCode::kInvalidArgument,
       "models of family {} in Hugging Face transformers have nothing for the parameter '{}'",
       plan::name(family), parameter);
}

std::vector<RowRun> runs_by_head(std::int64_t rows, std::int64_t heads) {
  constexpr std::int64_t kParts = 3;  // queries, keys, values
  const std::int64_t width = rows / (kParts * heads);
  std::vector<RowRun> runs;
  for (std::int64_t part = 0; part < kParts; ++part) {
    for (std::int64_t head = 0; head < heads; ++head) {
      runs.push_back({.ours = (part * heads + head) * width,
                      .theirs = (head * kParts + part) * width,
                      .count = width});
    }
  }
  return runs;
}

std::vector<std::string> names_in_files(Family family, std::string_view name) {
  std::vector<std::string> names{std::string(name)};
  const std::string_view model = names_of(family).model;
  if (name.starts_with(model)) names.emplace_back(name.substr(model.size()));
  const auto add_old = [&](std::string_view now, std::string_view before) {
    for (std::size_t i = 0, count = names.size(); i < count; ++i) {
      if (!names[i].ends_with(now)) continue;
      names.push_back(names[i].substr(0, names[i].size() - now.size()).append(before));
    }
  };
  if (family == Family::kGptNeox) add_old("embed_out.weight", "lm_head.weight");
  if (family == Family::kBert) {
    add_old("LayerNorm.weight", "LayerNorm.gamma");
    add_old("LayerNorm.bias", "LayerNorm.beta");
  }
  return names;
}

bool holds_no_parameter(Family family, std::string_view name, bool tied) {
  return is_dispensable(family, name) ||
         (tied && (name == "lm_head.weight" || name == "embed_out.weight"));
}

}  // namespace lockstep::nn
