#include "lockstep/data/text/text_pieces.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/text/text.h"

namespace lockstep::data {
namespace {

bool is_ascii_print(char letter) { return letter > ' ' && letter < '\x7f'; }

bool is_utf8_continuation(char letter) {
  return (static_cast<unsigned char>(letter) & 0xc0) == 0x80;
}

// The end of the line that `from` is in, or, where that is the end of the document, a place near
// `from` that is not inside a character.
std::size_t split_of(std::string_view document, std::size_t from) {
  const std::size_t line_break = document.find('\n', from);
  if (line_break != std::string_view::npos && line_break + 1 < document.size()) {
    return line_break + 1;
  }
  while (from < document.size() && is_utf8_continuation(document[from])) ++from;
  return from;
}

bool is_blank(std::string_view line) { return trim(line).empty(); }

}  // namespace

bool is_ascii_word(char letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
         (letter >= 'A' && letter <= 'Z');
}

std::size_t safe_cut(std::string_view document, std::size_t from, TextCut cut) {
  if (cut == TextCut::kNowhere) return document.size();
  const bool behind = cut == TextCut::kBehindLines;
  // The separator has a character before it, and stands at the cut or just before it.
  std::size_t at = std::max<std::size_t>(from, behind ? 2 : 1) - (behind ? 1 : 0);
  for (;; ++at) {
    at = document.find(behind ? '\n' : ' ', at);
    if (at == std::string_view::npos || at + 1 >= document.size()) return document.size();
    if (is_ascii_print(document[at - 1]) && is_ascii_word(document[at + 1])) {
      return behind ? at + 1 : at;
    }
  }
}

TextPieces::TextPieces(std::vector<TextFile> files, const Setup& setup)
    : files_(unpack_texts(std::move(files))), setup_(setup) {
  for (const TextFile& file : files_) bytes_ += file.bytes;
  split_ = bytes_ - static_cast<std::uint64_t>(static_cast<double>(bytes_) * setup.validation);
}

std::uint64_t TextPieces::position_of(const char* place) const {
  return text_begin_ + static_cast<std::uint64_t>(place - text_->view().data());
}

std::string_view TextPieces::take_line() {
  const std::size_t end = std::min(rest_.find('\n'), rest_.size());
  const std::string_view line = rest_.substr(0, end);
  rest_.remove_prefix(std::min(end + 1, rest_.size()));
  ++line_;
  return line;
}

bool TextPieces::begin_document() {
  for (;;) {
    while (rest_.empty()) {
      if (next_file_ == files_.size()) return false;
      if (text_) text_begin_ += text_->view().size();
      text_ = open_text(files_[next_file_++]);
      rest_ = text_->view();
      line_ = 0;
    }
    if (setup_.documents == DocumentKind::kFiles) {
      document_ = std::exchange(rest_, {});
      return true;
    }
    document_ = take_line();
    if (is_blank(document_)) continue;
    document_line_ = line_;
    if (setup_.documents == DocumentKind::kJsonLines) return true;
    while (!rest_.empty()) {
      const std::string_view line = take_line();
      if (is_blank(line)) break;
      document_ = {document_.data(), static_cast<std::size_t>(line.end() - document_.data())};
    }
    return true;
  }
}

bool TextPieces::next(TextPiece& piece) {
  piece = {};
  std::size_t bytes = 0;
  while (bytes < setup_.piece) {
    if (document_.empty() && !begin_document()) break;
    const std::uint64_t at = position_of(document_.data());
    const bool validation = at >= split_;
    if (!piece.parts.empty() && validation != piece.validation) break;
    piece.validation = validation;

    std::size_t take = document_.size();
    bool ends_document = true;
    if (!validation && at + take > split_ && setup_.documents != DocumentKind::kJsonLines) {
      take = split_of(document_, split_ - at);  // both sides of the split are documents
    }
    if (take > setup_.piece) {
      const std::size_t cut = safe_cut(document_.substr(0, take), setup_.piece, setup_.cut);
      ends_document = cut == take;
      take = cut;
    }
    piece.parts.push_back({.text = text_,
                           .content = document_.substr(0, take),
                           .line = document_line_,
                           .ends_document = ends_document});
    document_.remove_prefix(take);
    bytes += take;
    piece.bytes_done = position_of(document_.data());
  }
  return !piece.parts.empty();
}

}  // namespace lockstep::data
