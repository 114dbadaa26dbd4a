// The names of tensors in Hugging Face transformers, and how our parameters are made of them.
//
// Ours differ in four ways. Weights are [out, in] always, where GPT-2's there are [in, out].
// Queries, keys and values are one matrix, and so are the gates and ups of SwiGLU: the rows of one
// behind those of the other; GPT-NeoX has them together, but those of one head behind those of the
// other. A table that serves twice (tied logits) is stored once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/model_shape.h"

namespace lockstep::nn {

struct ForeignTensors {
  std::vector<std::string> names;  // their rows follow each other
  bool transposed = false;         // each is [in, out]
  bool by_head = false;            // a head's queries, keys and values, then those of the next
};

// For a parameter by its full name, as the classes of the family in transformers call them
// (nn/hugging_face/config.h). Throws Error(kInvalidArgument) for a name that the family does not
// have.
ForeignTensors hugging_face_tensors(plan::Family family, std::string_view parameter);

// Rows that follow each other in one of our parameters and in a tensor of theirs.
struct RowRun {
  std::int64_t ours = 0;
  std::int64_t theirs = 0;
  std::int64_t count = 0;
};
// Those of queries, keys and values of `heads` heads, in `rows` rows, that are by_head; in the
// order of ours.
std::vector<RowRun> runs_by_head(std::int64_t rows, std::int64_t heads);

// The names of a tensor in files, the usual one first: also without the model's prefix ("h.0..."
// instead of "transformer.h.0..."), and as in older files.
std::vector<std::string> names_in_files(plan::Family family, std::string_view name);

// Whether a model is complete without this tensor of its file.
bool holds_no_parameter(plan::Family family, std::string_view name, bool tied);

}  // namespace lockstep::nn
