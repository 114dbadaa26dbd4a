#include "lockstep/nn/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "lockstep/base/error.h"

namespace lockstep::nn {
namespace {

using plan::Family;

// One parameter, or one of every layer: then both sides stand behind the layer's name.
struct Rule {
  std::string_view ours;
  std::vector<std::string_view> theirs;
  bool transposed = false;
};

struct Names {
  std::string_view model;  // in front of all that files of the bare model lack
  std::string_view layer;  // in front of a layer's number
  std::vector<Rule> outside;
  std::vector<Rule> layers;
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
  switch (family) {
    case Family::kGpt2:
      return kGpt2;
    case Family::kLlama:
      return kLlama;
    case Family::kBert:
      break;
  }
  return kBert;
}

// The name under which the file has a tensor.
std::string name_in(const io::SafetensorsFile& file, std::string_view prefix, std::string_view name,
                    std::string_view model) {
  std::string full = fmt::format("{}{}", prefix, name);
  if (file.find(full) == nullptr && name.starts_with(model)) {
    std::string bare = fmt::format("{}{}", prefix, name.substr(model.size()));
    if (file.find(bare) != nullptr) return bare;
  }
  return full;
}

std::vector<float> floats_of(const io::SafetensorsFile& file, const std::string& name) {
  const auto loaded = file.load(name);
  std::vector<float> values(loaded.tensor.elements());
  const auto convert = [&](auto elements) {
    std::transform(elements.begin(), elements.end(), values.begin(), [](auto x) {
      if constexpr (std::is_same_v<decltype(x), float>) {
        return x;
      } else {
        return to_float(x);
      }
    });
  };
  switch (loaded.tensor.dtype()) {
    case DType::kF32:
      convert(loaded.tensor.as<float>());
      break;
    case DType::kBF16:
      convert(loaded.tensor.as<BFloat16>());
      break;
    case DType::kF16:
      convert(loaded.tensor.as<Half>());
      break;
    default:
      fail(ErrorCode::kInvalidArgument, "'{}' is of type {}; parameters are f32, bf16 or f16", name,
           lockstep::name(loaded.tensor.dtype()));
  }
  return values;
}

std::vector<float> transposed(std::span<const float> values, const Shape& shape) {
  const auto rows = static_cast<std::size_t>(shape[0]);
  const auto columns = static_cast<std::size_t>(shape[1]);
  std::vector<float> result(values.size());
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) result[j * rows + i] = values[i * columns + j];
  }
  return result;
}

// The values of one parameter, put together.
std::vector<float> gather(const io::SafetensorsFile& file, Family family, std::string_view prefix,
                          const FlatParameter& parameter) {
  const ForeignTensors source = hugging_face_tensors(family, parameter.name);
  std::vector<float> values;
  std::vector<std::string> shapes;
  bool fits = true;
  for (const std::string& name : source.names) {
    const std::string full = name_in(file, prefix, name, names_of(family).model);
    const Shape& shape = file.at(full).shape;
    shapes.push_back(fmt::format("'{}' of {}", full, shape.text()));
    const Shape& ours = parameter.shape;
    fits = fits && shape.dimensions() == ours.dimensions() &&
           (ours.dimensions() == 1 || shape[source.transposed ? 0 : 1] == ours[1]);
    if (!fits) break;
    const std::vector<float> part = floats_of(file, full);
    const std::vector<float> turned = source.transposed ? transposed(part, shape) : part;
    values.insert(values.end(), turned.begin(), turned.end());
  }
  if (!fits || values.size() != parameter.shape.elements()) {
    fail(
        ErrorCode::kInvalidArgument,
        "the file's {} cannot be the model's '{}' of {}{}; are the sizes of the model those of the "
        "file?",
        fmt::join(shapes, ", "), parameter.name, parameter.shape.text(),
        source.transposed ? ", transposed" : "");
  }
  return values;
}

}  // namespace

ForeignTensors hugging_face_tensors(Family family, std::string_view parameter) {
  constexpr std::string_view kLayer = "layer.";
  const Names& names = names_of(family);
  std::string_view rest = parameter;
  std::string prefix;
  const bool in_layer = parameter.starts_with(kLayer);
  if (in_layer) {
    const auto dot = parameter.find('.', kLayer.size());
    const std::string_view number = parameter.substr(kLayer.size(), dot - kLayer.size());
    rest = dot == std::string_view::npos ? "" : parameter.substr(dot + 1);
    prefix = fmt::format("{}{}.", names.layer, number);
  }
  for (const Rule& rule : in_layer ? names.layers : names.outside) {
    if (rule.ours != rest) continue;
    ForeignTensors found{.names = {}, .transposed = rule.transposed};
    for (const std::string_view theirs : rule.theirs) {
      found.names.push_back(fmt::format("{}{}", prefix, theirs));
    }
    return found;
  }
  fail(ErrorCode::kInvalidArgument,
       "models of family {} in Hugging Face transformers have nothing for the parameter '{}'",
       plan::name(family), parameter);
}

void read_hugging_face(const io::SafetensorsFile& file, Family family, const FlatParameters& flat,
                       const Tensor& row, std::string_view prefix) {
  fill_zero(row);
  for (const FlatParameter& parameter : flat.all()) {
    std::vector<float> values = gather(file, family, prefix, parameter);
    copy(FlatParameters::view(row, parameter), tensor_of(std::span(values), parameter.shape));
  }
}

void load_hugging_face(const io::SafetensorsFile& file, Family family, Replica& replica,
                       std::string_view prefix) {
  const States& states = replica.states();
  read_hugging_face(file, family, replica.flat(), states.master, prefix);
  if (states.master.data() != states.parameters.data()) {
    replica.ops().run(ops::Cast{.from = states.master, .to = states.parameters});
    replica.ops().synchronize();
  }
}

}  // namespace lockstep::nn
