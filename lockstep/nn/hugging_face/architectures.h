// The classes of Hugging Face transformers that lockstep has models for: a row each, read for
// import and for export.
#pragma once

#include <span>
#include <string_view>
#include <utility>

#include "lockstep/nn/models/models.h"
#include "lockstep/plan/model_shape.h"

namespace lockstep::nn {

struct Architecture {
  std::string_view name;  // "LlamaForCausalLM", as config.json has it
  std::string_view type;  // its model_type
  plan::Family family = plan::Family::kGpt2;
  bool qkv_biases = false;  // always
  bool windowed = false;    // may have a window of attention
  bool by_layer = false;    // from some layer on
};

// Of several that share a family, the one without qualities of its own comes first.
std::span<const Architecture> architectures();

// The one that a model is exported as. Throws Error(kUnsupported) where none has its parts.
const Architecture& architecture_for(const plan::ModelShape& shape);

// Activations by the names that transformers has for them; the usual name of each comes first.
std::span<const std::pair<std::string_view, ops::Activation>> activation_names();

}  // namespace lockstep::nn
