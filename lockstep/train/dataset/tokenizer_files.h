// tokenizer.json of Hugging Face's library, as text: what a folder of a model says besides it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/nn/hugging_face/config.h"

namespace lockstep::train {

// Whether the text is one that Hugging Face's library reads, and not one of lockstep's own kinds
// (data/tokenizer/tokenizer.h: byte and character). Throws Error(kProtocol) for what is no JSON.
bool is_hugging_face_tokenizer(std::string_view json, std::string_view source);

// Where a folder of a model has its tokenizer: what an export of lockstep's own kinds wrote, else
// tokenizer.json. Empty where there is neither.
std::filesystem::path tokenizer_file_in(const std::filesystem::path& folder);

// By the usual names of such tokens, like <|endoftext|>, </s> and [PAD].
nn::SpecialTokens special_tokens(std::string_view json, std::string_view source);

// tokenizer_config.json, as far as AutoTokenizer needs it.
std::string tokenizer_config(std::string_view json, std::string_view source,
                             std::uint64_t positions);

}  // namespace lockstep::train
