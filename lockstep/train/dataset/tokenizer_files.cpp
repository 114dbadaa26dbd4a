#include "lockstep/train/dataset/tokenizer_files.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

// What special tokens are called, by their role in tokenizer_config.json; the first that is there
// counts. GPT-2 has one token for begin and end.
struct Role {
  const char* key;
  std::vector<std::string_view> names;
};
const std::vector<Role>& roles() {
  static const std::vector<Role> kRoles = {
      {"bos_token", {"<|begin_of_text|>", "<s>", "<|endoftext|>"}},
      {"eos_token", {"<|end_of_text|>", "</s>", "<|endoftext|>"}},
      {"unk_token", {"<unk>", "[UNK]"}},
      {"pad_token", {"<pad>", "[PAD]"}},
      {"mask_token", {"<mask>", "[MASK]"}},
      {"cls_token", {"[CLS]"}},
      {"sep_token", {"[SEP]"}}};
  return kRoles;
}

Json parse(std::string_view text, std::string_view source) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    fail(ErrorCode::kProtocol, "{} is not valid JSON: {}", source, error.what());
  }
}

// Special tokens by name.
std::map<std::string, std::int64_t, std::less<>> added_tokens(const Json& json) {
  std::map<std::string, std::int64_t, std::less<>> tokens;
  if (!json.is_object() || !json.contains("added_tokens")) return tokens;
  for (const Json& token : json["added_tokens"]) {
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string() ||
        !token.contains("id") || !token["id"].is_number_integer()) {
      continue;
    }
    tokens[token["content"].get<std::string>()] = token["id"].get<std::int64_t>();
  }
  return tokens;
}

// The token of each role that there is.
std::map<std::string, std::pair<std::string, std::int64_t>> tokens_by_role(const Json& json) {
  const auto tokens = added_tokens(json);
  std::map<std::string, std::pair<std::string, std::int64_t>> found;
  for (const Role& role : roles()) {
    for (const std::string_view name : role.names) {
      const auto token = tokens.find(name);
      if (token == tokens.end()) continue;
      found[role.key] = *token;
      break;
    }
  }
  return found;
}

}  // namespace

bool is_hugging_face_tokenizer(std::string_view text, std::string_view source) {
  const Json json = parse(text, source);
  return json.is_object() && json.contains("model") && json["model"].is_object();
}

std::filesystem::path tokenizer_file_in(const std::filesystem::path& folder) {
  for (const char* name : {"lockstep_tokenizer.json", "tokenizer.json"}) {
    std::error_code none;
    if (std::filesystem::exists(folder / name, none)) return folder / name;
  }
  return {};
}

nn::SpecialTokens special_tokens(std::string_view text, std::string_view source) {
  const auto tokens = tokens_by_role(parse(text, source));
  const auto id = [&](const char* role) {
    const auto token = tokens.find(role);
    return token == tokens.end() ? std::nullopt : std::optional(token->second.second);
  };
  return {.begin = id("bos_token"), .end = id("eos_token"), .padding = id("pad_token")};
}

std::string tokenizer_config(std::string_view text, std::string_view source,
                             std::uint64_t positions) {
  Json json{{"tokenizer_class", "PreTrainedTokenizerFast"},
            {"model_max_length", positions},
            {"clean_up_tokenization_spaces", false}};
  for (const auto& [role, token] : tokens_by_role(parse(text, source))) json[role] = token.first;
  return json.dump(2) + "\n";
}

}  // namespace lockstep::train
