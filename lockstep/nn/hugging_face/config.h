// config.json of Hugging Face transformers and what lockstep has for it.
//
// nn/hugging_face/architectures.h has the classes that are known. An unsupported setting (another
// activation, other rotary positions, attention biases in Llama, ...) is an error that names its
// key, because the model would compute something else without it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/nn/models/models.h"
#include "lockstep/plan/model_shape.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::nn {

struct HuggingFaceConfig {
  plan::ModelShape shape;
  ModelOptions options;
  std::vector<std::string> notices;  // settings of training that have no counterpart
};

// `source` names the text in errors. Throws Error(kProtocol) for invalid JSON,
// Error(kInvalidArgument) for a value of the wrong type or sizes that contradict each other, and
// Error(kUnsupported) for a model that lockstep does not have.
HuggingFaceConfig parse_hugging_face_config(std::string_view json, std::string_view source);

// Tokens that a model's files name by number; nothing: the tokenizer has none.
struct SpecialTokens {
  std::optional<std::int64_t> begin;
  std::optional<std::int64_t> end;
  std::optional<std::int64_t> padding;
  std::optional<std::int64_t> decoder_start = {};  // of an encoder-decoder: before its first token
};

// What lockstep's own config.json have under "made_by".
inline constexpr std::string_view kMadeBy = "lockstep";

std::string format_hugging_face_config(const plan::ModelShape& shape, const ModelOptions& options,
                                       DType dtype, const SpecialTokens& tokens);
// generation_config.json.
std::string format_generation_config(const SpecialTokens& tokens);

}  // namespace lockstep::nn
