// A cache of the ids of words.
//
// Two tables of fixed size, one for short words of few ids, which are most, and one for longer
// ones. A word has one slot in its table and replaces what is there, so nothing is allocated. One
// thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

class WordCache {
 public:
  WordCache() : short_(std::size_t{1} << kShortBits), long_(std::size_t{1} << kLongBits) {}

  // Appends the ids of `word` where they are known.
  bool append(std::string_view word, std::vector<TokenId>& ids) const {
    if (word.size() <= kShortBytes) {
      const Key key = key_of(word);
      const ShortSlot& slot = short_[place_of(key, word.size(), kShortBits)];
      if (slot.key.front != key.front || slot.key.back != key.back || slot.bytes != word.size()) {
        return false;
      }
      // Most words have one id.
      ids.push_back(slot.ids[0]);
      for (std::size_t i = 1; i < slot.count; ++i) ids.push_back(slot.ids[i]);
      return true;
    }
    if (word.size() > kLongBytes) return false;
    const LongSlot& slot = long_[long_place(word)];
    if (slot.bytes != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0) {
      return false;
    }
    ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
    return true;
  }

  // `word` is not empty, nor are its ids.
  void remember(std::string_view word, std::span<const TokenId> ids) {
    if (ids.empty()) return;
    if (word.size() <= kShortBytes) {
      if (ids.size() > kShortIds) return;
      const Key key = key_of(word);
      ShortSlot& slot = short_[place_of(key, word.size(), kShortBits)];
      slot.key = key;
      slot.bytes = static_cast<std::uint8_t>(word.size());
      slot.count = static_cast<std::uint8_t>(ids.size());
      std::copy(ids.begin(), ids.end(), slot.ids);
    } else if (word.size() <= kLongBytes && ids.size() <= kLongIds) {
      LongSlot& slot = long_[long_place(word)];
      slot.bytes = static_cast<std::uint8_t>(word.size());
      slot.count = static_cast<std::uint8_t>(ids.size());
      std::memcpy(slot.word, word.data(), word.size());
      std::copy(ids.begin(), ids.end(), slot.ids);
    }
  }

 private:
  static constexpr int kShortBits = 16;
  static constexpr int kLongBits = 13;
  static constexpr std::size_t kShortBytes = 16;
  static constexpr std::size_t kShortIds = 3;
  static constexpr std::size_t kLongBytes = 62;
  static constexpr std::size_t kLongIds = 16;

  // A word of up to 16 bytes, given its length.
  struct Key {
    std::uint64_t front = 0;
    std::uint64_t back = 0;
  };
  struct ShortSlot {
    Key key;
    TokenId ids[kShortIds];
    std::uint8_t bytes = 0;  // 0: empty
    std::uint8_t count = 0;
  };
  static_assert(sizeof(ShortSlot) == 32);
  struct LongSlot {
    char word[kLongBytes];
    std::uint8_t bytes = 0;
    std::uint8_t count = 0;
    TokenId ids[kLongIds];
  };
  static_assert(sizeof(LongSlot) == 128);

  template <class Word>
  static std::uint64_t load(const char* from) {
    Word word;
    std::memcpy(&word, from, sizeof(word));
    return word;
  }

  static Key key_of(std::string_view word) {
    const char* const end = word.data() + word.size();
    if (word.size() >= 8) return {load<std::uint64_t>(word.data()), load<std::uint64_t>(end - 8)};
    if (word.size() >= 4) return {load<std::uint32_t>(word.data()), load<std::uint32_t>(end - 4)};
    if (word.size() >= 2) return {load<std::uint16_t>(word.data()), load<std::uint16_t>(end - 2)};
    return {static_cast<unsigned char>(word[0]), 0};
  }

  static std::uint64_t mixed(std::uint64_t hash) {
    hash *= 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
  }
  static std::size_t place_of(Key key, std::size_t bytes, int bits) {
    const std::uint64_t hash = mixed(mixed(key.front + bytes) ^ key.back) * 0xd6e8feb86659fd93u;
    return static_cast<std::size_t>(hash >> (64 - bits));
  }
  static std::size_t long_place(std::string_view word) {
    std::uint64_t hash = word.size();
    for (std::size_t at = 0; at + 8 < word.size(); at += 8) {
      hash = mixed(hash ^ load<std::uint64_t>(word.data() + at));
    }
    const Key tail{hash, load<std::uint64_t>(word.data() + word.size() - 8)};
    return place_of(tail, 0, kLongBits);
  }

  std::vector<ShortSlot> short_;
  std::vector<LongSlot> long_;
};

}  // namespace lockstep::data
