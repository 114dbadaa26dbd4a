#include "lockstep/base/file/file.h"
#include "lockstep/data/tokenizer/json.h"
#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/data/tokenizers/bpe_tokenizer.h"
#include "lockstep/data/tokenizers/character_tokenizer.h"
#include "lockstep/data/tokenizers/unigram_tokenizer.h"
#include "lockstep/data/tokenizers/wordpiece_tokenizer.h"

namespace lockstep::data {
namespace {

constexpr const char* kFileName = "tokenizer.json";

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, std::string_view source) {
  const JsonFile file(json, source);
  const JsonPart root = file.root();
  if (root.has("kind")) {
    const std::string_view kind = root.at("kind").text();
    if (kind == "byte") return make_byte_tokenizer();
    if (kind == "character") return parse_character_tokenizer(root);
    root.unsupported("unknown kind of tokenizer '{}'; expected byte or character", kind);
  }
  const JsonPart model = root.at("model");
  const std::string_view type = model.text_or(
      "type", model.has("merges") ? "BPE" : (model.has("unk_id") ? "Unigram" : "WordPiece"));
  if (type == "BPE") return std::make_unique<BpeTokenizer>(root, json);
  if (type == "WordPiece") return std::make_unique<WordPieceTokenizer>(root, json);
  if (type == "Unigram") return std::make_unique<UnigramTokenizer>(root, json);
  model.unsupported("unknown model type '{}'; lockstep supports BPE, WordPiece and Unigram", type);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto file = std::filesystem::is_directory(path, ignored) ? path / kFileName : path;
  return parse_tokenizer(read_file(file), file.string());
}

}  // namespace lockstep::data
