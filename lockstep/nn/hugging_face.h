// Models of Hugging Face transformers: which of their tensors make which parameter of ours.
//
// Ours differ in three ways. Weights are [out, in] always, where GPT-2's there are [in, out].
// Queries, keys and values are one matrix, and so are the gates and ups of SwiGLU: the rows of one
// behind those of the other. A table that serves twice (tied logits) is stored once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/io/safetensors.h"
#include "lockstep/nn/flat_parameters.h"
#include "lockstep/nn/replica.h"
#include "lockstep/plan/model_shape.h"

namespace lockstep::nn {

struct ForeignTensors {
  std::vector<std::string> names;  // their rows follow each other
  bool transposed = false;         // each is [in, out]
};

// For a parameter by its full name, as GPT2LMHeadModel, LlamaForCausalLM and BertForMaskedLM call
// them. Throws Error(kInvalidArgument) for a name that the family does not have.
ForeignTensors hugging_face_tensors(plan::Family family, std::string_view parameter);

// Fills a row of f32 (nn/flat_parameters.h) with the tensors of a file, of f32, bf16 or f16, whose
// names stand behind `prefix`; files without the name of the model in front ("h.0..." instead of
// "transformer.h.0...") are read too. Throws Error(kInvalidArgument) for a tensor that is missing
// or has another shape.
void read_hugging_face(const io::SafetensorsFile& file, plan::Family family,
                       const FlatParameters& flat, const Tensor& row, std::string_view prefix = "");

// The parameters of a replica, master copy and rounded.
void load_hugging_face(const io::SafetensorsFile& file, plan::Family family, Replica& replica,
                       std::string_view prefix = "");

}  // namespace lockstep::nn
