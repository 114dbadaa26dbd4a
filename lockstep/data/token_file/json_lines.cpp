#include "lockstep/data/token_file/json_lines.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

// Why a text is no JSON.
std::string json_problem(std::string_view text) {
  try {
    const auto parsed = nlohmann::json::parse(text);
    return "";
  } catch (const nlohmann::json::parse_error& error) {
    // Behind "[json.exception.parse_error.101] parse error at line 1, column 3: ".
    const std::string_view all = error.what();
    const std::size_t reason = all.find(": ");
    return fmt::format("at byte {}: {}", error.byte,
                       reason == std::string_view::npos ? all : all.substr(reason + 2));
  }
}

}  // namespace

std::string text_of_json_line(const TextPiece::Part& part, const std::string& field) {
  const auto object = nlohmann::json::parse(part.content, nullptr, false);
  const auto complain = [&](const std::string& what) {
    fail(ErrorCode::kInvalidArgument,
         "{}:{}: {}, where a JSON object with a text as \"{}\" was "
         "expected",
         part.text->path().string(), part.line, what, field);
  };
  if (object.is_discarded()) complain(fmt::format("no JSON ({})", json_problem(part.content)));
  if (!object.is_object()) complain("no object");
  const auto found = object.find(field);
  if (found == object.end()) complain(fmt::format("an object without \"{}\"", field));
  if (!found->is_string()) complain(fmt::format("\"{}\" is not a string", field));
  return found->get<std::string>();
}

void LearningTexts::add(std::span<const TextFile> files, const std::string& field) {
  if (field.empty()) {
    for (const TextFile& file : files) {
      texts_.push_back(open_text(file));
      views_.push_back(texts_.back()->view());
    }
    return;
  }
  TextPieces pieces({files.begin(), files.end()}, {.documents = DocumentKind::kJsonLines});
  std::vector<std::string>& lines = lines_.emplace_back();
  for (TextPiece piece; pieces.next(piece);) {
    for (const TextPiece::Part& part : piece.parts) lines.push_back(text_of_json_line(part, field));
  }
  views_.insert(views_.end(), lines.begin(), lines.end());
}

void LearningTexts::check_whole() const {
  for (const auto& text : texts_) text->check_whole();
}

}  // namespace lockstep::data
