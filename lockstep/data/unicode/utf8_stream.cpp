#include "lockstep/data/unicode/utf8_stream.h"

#include <algorithm>
#include <utility>

namespace lockstep::data {
namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// How many bytes a character has that begins so; 1 for what begins none.
std::size_t length_of(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte >= 0xc2 && byte <= 0xdf) return 2;
  if (byte >= 0xe0 && byte <= 0xef) return 3;
  if (byte >= 0xf0 && byte <= 0xf4) return 4;
  return 1;
}

// How many bytes at the end are the beginning of a character.
std::size_t unfinished(std::string_view text) {
  const std::size_t most = std::min<std::size_t>(3, text.size());
  for (std::size_t count = 1; count <= most; ++count) {
    const char byte = text[text.size() - count];
    if (continues(byte)) continue;
    return length_of(byte) > count ? count : 0;
  }
  return 0;
}

}  // namespace

std::string Utf8Stream::add(std::string_view bytes) {
  std::string text = std::move(waiting_);
  text += bytes;
  const std::size_t complete = text.size() - unfinished(text);
  waiting_ = text.substr(complete);
  text.resize(complete);
  return text;
}

std::string Utf8Stream::finish() { return std::exchange(waiting_, {}); }

}  // namespace lockstep::data
