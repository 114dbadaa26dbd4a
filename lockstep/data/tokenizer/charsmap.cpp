#include "lockstep/data/tokenizer/charsmap.h"

#include <bit>
#include <cstring>

#include "lockstep/base/text/base64.h"
#include "lockstep/data/tokenizer/growth.h"
#include "lockstep/data/unicode/graphemes.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the table is read as it is");

constexpr std::size_t kLongestCluster = 5;  // that is looked up as a whole, in bytes

// A unit of the double array: the byte that leads to it, whether a text ends there, and where its
// children are.
constexpr std::uint32_t kLabel = std::uint32_t{1} << 31 | 0xff;
constexpr std::uint32_t kEndsText = 1 << 8;
constexpr std::uint32_t kPlace = (std::uint32_t{1} << 31) - 1;

std::size_t children(std::uint32_t unit) {
  return std::size_t{unit >> 10} << ((unit & 1 << 9) >> 6);
}

}  // namespace

Charsmap::Charsmap(const JsonPart& part) : place_(part.place()) {
  const auto bytes = from_base64(part.text());
  if (!bytes) part.reject("it is not Base64");
  std::uint32_t trie_bytes = 0;
  if (bytes->size() < sizeof(trie_bytes)) part.reject("it has no trie");
  std::memcpy(&trie_bytes, bytes->data(), sizeof(trie_bytes));
  const std::size_t units = trie_bytes / sizeof(std::uint32_t);
  const std::size_t behind = sizeof(trie_bytes) + units * sizeof(std::uint32_t);
  if (units == 0 || behind > bytes->size()) {
    part.reject("its trie of {} bytes does not fit into its {} bytes", trie_bytes, bytes->size());
  }
  units_.resize(units);
  std::memcpy(units_.data(), bytes->data() + sizeof(trie_bytes), behind - sizeof(trie_bytes));
  replacements_ = bytes->substr(behind);
  if (valid_utf8_prefix(replacements_) != replacements_.size()) {
    part.reject("its replacements are not UTF-8");
  }
  for (std::size_t i = 0; i < ascii_.size(); ++i) {
    const char letter = static_cast<char>(i);
    ascii_[i] = replacement(std::string_view(&letter, 1));
  }
}

std::uint32_t Charsmap::unit(std::size_t index) const {
  if (index >= units_.size()) {
    fail(ErrorCode::kProtocol, "{}: its trie leads to unit {} of {}", place_, index, units_.size());
  }
  return units_[index];
}

std::optional<std::string_view> Charsmap::replacement(std::string_view what) const {
  std::size_t at = children(unit(0));
  for (const char letter : what) {
    if (letter == '\0') return std::nullopt;
    const std::uint32_t byte = static_cast<unsigned char>(letter);
    at ^= byte;
    const std::uint32_t next = unit(at);
    if ((next & kLabel) != byte) return std::nullopt;
    at ^= children(next);
    if ((next & kEndsText) == 0) continue;
    const std::size_t begin = unit(at) & kPlace;
    const bool is_inside = begin <= replacements_.size();
    if (!is_inside || (begin < replacements_.size() &&
                       (static_cast<unsigned char>(replacements_[begin]) & 0xc0) == 0x80)) {
      fail(ErrorCode::kProtocol, "{}: a replacement begins at byte {} of {}", place_, begin,
           replacements_.size());
    }
    const std::size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
    return std::string_view(replacements_).substr(begin, end - begin);
  }
  return std::nullopt;
}

void Charsmap::append_replaced(std::string_view text, std::string& result) const {
  const auto append = [&](std::string_view what) {
    const auto with =
        what.size() == 1 ? ascii_[static_cast<unsigned char>(what.front())] : replacement(what);
    result += with.value_or(what);
  };
  const std::size_t before = result.size();
  const std::size_t from = text.size();
  while (!text.empty()) {
    check_growth(result.size() - before, from);
    // Two characters of ASCII are two clusters, but for the line end of DOS.
    if (is_ascii(text[0]) && text[0] != '\r' && (text.size() == 1 || is_ascii(text[1]))) {
      append(text.substr(0, 1));
      text.remove_prefix(1);
      continue;
    }
    std::string_view cluster = text.substr(0, grapheme_bytes(text));
    text.remove_prefix(cluster.size());
    if (cluster.size() <= kLongestCluster) {
      if (const auto with = replacement(cluster)) {
        result += *with;
        continue;
      }
    }
    while (!cluster.empty()) {
      const std::size_t bytes = decode_valid_utf8(cluster.data()).bytes;
      append(cluster.substr(0, bytes));
      cluster.remove_prefix(bytes);
    }
  }
}

}  // namespace lockstep::data
