#include "lockstep/nn/hugging_face/architectures.h"

#include "lockstep/base/error.h"

namespace lockstep::nn {

using plan::Family;

std::span<const Architecture> architectures() {
  static constexpr Architecture kAll[] = {
      {.name = "GPT2LMHeadModel", .type = "gpt2", .family = Family::kGpt2},
      {.name = "LlamaForCausalLM", .type = "llama", .family = Family::kLlama},
      {.name = "MistralForCausalLM", .type = "mistral", .family = Family::kLlama, .windowed = true},
      {.name = "Qwen2ForCausalLM",
       .type = "qwen2",
       .family = Family::kLlama,
       .qkv_biases = true,
       .windowed = true,
       .by_layer = true},
      {.name = "Qwen3ForCausalLM",
       .type = "qwen3",
       .family = Family::kQwen3,
       .windowed = true,
       .by_layer = true},
      {.name = "Phi3ForCausalLM", .type = "phi3", .family = Family::kPhi3, .windowed = true},
      {.name = "Gemma2ForCausalLM",
       .type = "gemma2",
       .family = Family::kGemma2,
       .windowed = true,
       .by_layer = true},
      {.name = "GPTNeoXForCausalLM", .type = "gpt_neox", .family = Family::kGptNeox},
      {.name = "MixtralForCausalLM",
       .type = "mixtral",
       .family = Family::kMixtral,
       .windowed = true},
      {.name = "T5ForConditionalGeneration", .type = "t5", .family = Family::kT5},
      {.name = "T5ForConditionalGeneration", .type = "t5", .family = Family::kT5V11},
      {.name = "BertForMaskedLM", .type = "bert", .family = Family::kBert},
      {.name = "BertForPreTraining", .type = "bert", .family = Family::kBert},
  };
  return kAll;
}

const Architecture& architecture_for(const plan::ModelShape& shape) {
  for (const Architecture& one : architectures()) {
    const bool has_window = shape.window == 0 || one.windowed;
    const bool has_layers = shape.window == 0 || shape.unwindowed_layers == 0 || one.by_layer;
    if (one.family == shape.family && one.qkv_biases == shape.qkv_biases && has_window &&
        has_layers) {
      return one;
    }
  }
  fail(ErrorCode::kUnsupported,
       "Hugging Face transformers has no model of family {} with a window of attention from layer "
       "{} on; those with model.qkv_bias = true, or of family qwen3, can have one",
       plan::name(shape.family), shape.unwindowed_layers);
}

std::span<const std::pair<std::string_view, ops::Activation>> activation_names() {
  static constexpr std::pair<std::string_view, ops::Activation> kAll[] = {
      {"gelu_new", ops::Activation::kGeluTanh},
      {"gelu_pytorch_tanh", ops::Activation::kGeluTanh},
      {"gelu_fast", ops::Activation::kGeluTanh},
      {"gelu", ops::Activation::kGeluErf},
      {"relu", ops::Activation::kRelu}};
  return kAll;
}

}  // namespace lockstep::nn
