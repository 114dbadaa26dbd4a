// The names of tensors in Hugging Face transformers, and how our parameters are made of them.
//
// Ours differ in three ways. Weights are [out, in] always, where GPT-2's there are [in, out].
// Queries, keys and values are one matrix, and so are the gates and ups of SwiGLU: the rows of one
// behind those of the other. A table that serves twice (tied logits) is stored once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/model_shape.h"

namespace lockstep::nn {

struct ForeignTensors {
  std::vector<std::string> names;  // their rows follow each other
  bool transposed = false;         // each is [in, out]
};

// For a parameter by its full name, as GPT2LMHeadModel, LlamaForCausalLM, BertForMaskedLM and
// MixtralForCausalLM call them. Throws Error(kInvalidArgument) for a name that the family does not
// have.
ForeignTensors hugging_face_tensors(plan::Family family, std::string_view parameter);

// The names of a tensor in files, the usual one first: also without the model's prefix ("h.0..."
// instead of "transformer.h.0..."), and as in older files.
std::vector<std::string> names_in_files(plan::Family family, std::string_view name);

// Whether a model is complete without this tensor of its file.
bool holds_no_parameter(plan::Family family, std::string_view name, bool tied);

}  // namespace lockstep::nn
