#include "lockstep/data/tokenizers/hugging_face_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lockstep::data {

std::string hugging_face_json(const HuggingFaceParts& parts) {
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":{},)"
      R"("normalizer":null,"pre_tokenizer":{},"post_processor":null,"decoder":{},"model":{}}})",
      parts.added_tokens, parts.pre_tokenizer, parts.decoder, parts.model);
}

// Written by hand, because a large ordered JSON object searches its members linearly.
std::string vocabulary_json(const std::vector<std::string>& tokens) {
  std::string text = "{";
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    text += fmt::format("{}{}:{}", id > 0 ? "," : "", nlohmann::json(tokens[id]).dump(), id);
  }
  return text + "}";
}

std::string bpe_model_json(std::string_view vocabulary, std::string_view merges) {
  return fmt::format(
      R"({{"type":"BPE","dropout":null,"unk_token":null,)"
      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,)"
      R"("byte_fallback":false,"ignore_merges":false,"vocab":{},"merges":{}}})",
      vocabulary, merges);
}

std::string byte_level_json(bool regex) {
  return fmt::format(
      R"({{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":{}}})",
      regex);
}

}  // namespace lockstep::data
