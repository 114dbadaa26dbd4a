// Assembles a tokenizer.json of Hugging Face's library from its parts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

struct HuggingFaceParts {
  std::string added_tokens = "[]";  // all of these are JSON
  std::string pre_tokenizer;
  std::string decoder;
  std::string model;
};
std::string hugging_face_json(const HuggingFaceParts& parts);

// The vocabulary of a model as a JSON object: token i has the id i.
std::string vocabulary_json(const std::vector<std::string>& tokens);

// The model of a BPE, with its vocabulary and merges as JSON.
std::string bpe_model_json(std::string_view vocabulary, std::string_view merges);

// The byte-level pre-tokenizer and decoder, which convert between bytes and visible characters
// (bpe_bytes.h). `regex`: cuts words by GPT-2's pattern first.
std::string byte_level_json(bool regex);

}  // namespace lockstep::data
