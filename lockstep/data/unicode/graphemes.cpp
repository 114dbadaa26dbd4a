#include "lockstep/data/unicode/graphemes.h"

#include "lockstep/data/unicode/block_table.h"
#include "lockstep/data/unicode/table_readers.h"
#include "lockstep/data/unicode/tables.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

using Class = GraphemeClass;

const BlockTable<std::uint8_t>& table() {
  static const BlockTable<std::uint8_t> kTable = [] {
    std::vector<std::uint8_t> all(kCodePoints);
    for_each_classed(grapheme_classes(), [&](char32_t point, std::uint32_t number) {
      all[point] = static_cast<std::uint8_t>(number);
    });
    return BlockTable<std::uint8_t>(all);
  }();
  return kTable;
}

bool is_control(Class one) {
  return one == Class::kControl || one == Class::kCarriageReturn || one == Class::kLineFeed;
}

bool extends(Class one) {
  return one == Class::kExtend || one == Class::kLinker || one == Class::kConjunctExtend;
}

bool is_hangul_pair(Class left, Class right) {
  switch (left) {
    case Class::kLeading:
      return right == Class::kLeading || right == Class::kVowel || right == Class::kLeadingVowel ||
             right == Class::kLeadingVowelTrailing;
    case Class::kLeadingVowel:
    case Class::kVowel:
      return right == Class::kVowel || right == Class::kTrailing;
    case Class::kLeadingVowelTrailing:
    case Class::kTrailing:
      return right == Class::kTrailing;
    default:
      return false;
  }
}

// A cluster that grows by characters at its end.
class Cluster {
 public:
  explicit Cluster(Class first) { take(first); }

  bool joins(Class next) const {
    if (last_ == Class::kCarriageReturn && next == Class::kLineFeed) return true;
    if (is_control(last_) || is_control(next)) return false;
    if (extends(next) || next == Class::kZeroWidthJoiner || next == Class::kSpacingMark ||
        last_ == Class::kPrepend) {
      return true;
    }
    switch (next) {
      case Class::kConsonant:
        return linked_;
      case Class::kPictographic:
        return joined_;
      case Class::kRegionalIndicator:
        return open_flag_;
      default:
        return is_hangul_pair(last_, next);
    }
  }

  void take(Class next) {
    joined_ = pictographic_ && next == Class::kZeroWidthJoiner;
    pictographic_ = next == Class::kPictographic || (pictographic_ && extends(next));
    open_flag_ = next == Class::kRegionalIndicator && !open_flag_;
    const bool between =
        next == Class::kLinker || next == Class::kConjunctExtend || next == Class::kZeroWidthJoiner;
    consonant_ = next == Class::kConsonant || (consonant_ && between);
    linked_ = consonant_ && next != Class::kConsonant && (linked_ || next == Class::kLinker);
    last_ = next;
  }

 private:
  Class last_ = Class::kOther;
  bool pictographic_ = false;  // it ends in a pictograph and what extends that
  bool joined_ = false;        // and in a joiner behind them
  bool open_flag_ = false;     // it ends in the first of two regional indicators
  bool consonant_ = false;     // it ends in a consonant and what may stand between consonants
  bool linked_ = false;        // and a linker is among that
};

}  // namespace

std::size_t grapheme_bytes(std::string_view text) {
  const BlockTable<std::uint8_t>& classes = table();
  const Utf8Character first = decode_valid_utf8(text.data());
  std::size_t bytes = first.bytes;
  Cluster cluster(static_cast<Class>(classes[first.code_point]));
  while (bytes < text.size()) {
    const Utf8Character next = decode_valid_utf8(text.data() + bytes);
    const auto next_class = static_cast<Class>(classes[next.code_point]);
    if (!cluster.joins(next_class)) break;
    cluster.take(next_class);
    bytes += next.bytes;
  }
  return bytes;
}

}  // namespace lockstep::data
