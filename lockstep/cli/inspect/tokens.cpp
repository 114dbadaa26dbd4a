#include "lockstep/cli/inspect/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/data/token_file/token_file.h"
#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::cli {
namespace {

using data::TokenFile;
using data::TokenId;

constexpr std::uint64_t kShownTokens = 32;
constexpr std::int64_t kAnyId = std::int64_t{1} << 32;

std::string longest_document(const TokenFile& file) {
  std::uint64_t longest = 0, number = 0;
  for (std::uint64_t i = 0; i < file.documents(); ++i) {
    const TokenFile::Document document = file.document(i);
    if (document.end - document.first > longest) {
      longest = document.end - document.first;
      number = i;
    }
  }
  return fmt::format("{} tokens, number {}", format_count(longest), number);
}

// The tokenizer beside the file, and what is to be said of it.
struct Beside {
  std::unique_ptr<data::Tokenizer> tokenizer;  // nullptr: none, or not the file's
  std::string remark;
};

Beside tokenizer_of(const TokenFile& file) {
  const std::filesystem::path path = file.path().parent_path() / "tokenizer.json";
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return {nullptr, "no tokenizer.json beside the file"};
  try {
    auto tokenizer = data::load_tokenizer(path);
    const std::string description =
        fmt::format("{} of {} ids", tokenizer->kind(),
                    format_count(static_cast<std::uint64_t>(tokenizer->vocabulary())));
    if (file.tokenizer_hash().empty()) {
      return {std::move(tokenizer),
              description + ", beside the file; the file does not name its tokenizer"};
    }
    if (file.tokenizer_hash() == content_hash(tokenizer->json())) {
      return {std::move(tokenizer), description};
    }
    return {nullptr,
            fmt::format("the {} beside the file is not the one that made it", description)};
  } catch (const Error& error) {
    return {nullptr, error.what()};
  }
}

std::string text_of(const data::Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string text;
  try {
    tokenizer.decode(ids, text);
  } catch (const Error& error) {
    return error.what();
  }
  return printable(text);
}

}  // namespace

void inspect_token_file(const std::filesystem::path& path) {
  const TokenFile file(path);
  const Beside beside = tokenizer_of(file);
  TextTable table;
  table.row({"format",
             fmt::format("{}, {} bytes per token", name(file.format()), file.bytes_per_token())});
  table.row({"tokens", format_count(file.size())});
  table.row({"vocabulary", file.vocabulary() > 0
                               ? format_count(static_cast<std::uint64_t>(file.vocabulary()))
                               : "the file does not say"});
  if (file.documents() > 0) {
    table.row({"documents", format_count(file.documents())});
    table.row({"longest", longest_document(file)});
  } else {
    table.row({"documents", "the file does not say"});
  }
  table.row({"tokenizer", beside.remark});
  table.row({"checksums", file.checksums() > 0
                              ? fmt::format("{} blocks", format_count(file.checksums()))
                              : "the file has none"});
  fmt::print("{}\n{}", file.path().string(), table.text());
  if (file.size() == 0) return;

  std::vector<TokenId> ids(std::min(file.size(), kShownTokens));
  file.read(0, ids, kAnyId);
  const char* more = file.size() > ids.size() ? " ..." : "";
  fmt::print("begins with\n  {}{}\n", fmt::join(ids, " "), more);
  if (beside.tokenizer) fmt::print("as text\n{}{}\n", text_of(*beside.tokenizer, ids), more);
}

}  // namespace lockstep::cli
