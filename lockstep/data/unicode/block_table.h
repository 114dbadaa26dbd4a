// A small value for each code point.
//
// Blocks of 256 code points that are equal are stored once: most of Unicode is unassigned, or long
// runs of letters.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace lockstep::data {

inline constexpr char32_t kCodePoints = 0x110000;

template <class Value>
class BlockTable {
 public:
  // `all` has kCodePoints values.
  explicit BlockTable(const std::vector<Value>& all) {
    std::map<Block, std::uint16_t> known;
    for (std::size_t index = 0; index < blocks_at_.size(); ++index) {
      Block block;
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(index * block.size()), block.size(),
                  block.begin());
      const auto [place, is_new] = known.emplace(block, static_cast<std::uint16_t>(blocks_.size()));
      if (is_new) blocks_.push_back(block);
      blocks_at_[index] = place->second;
    }
  }

  // Of any code point up to U+10FFFF.
  Value operator[](char32_t code_point) const {
    return blocks_[blocks_at_[code_point >> 8]][code_point & 0xff];
  }

 private:
  using Block = std::array<Value, 256>;
  std::array<std::uint16_t, kCodePoints / 256> blocks_at_{};
  std::vector<Block> blocks_;  // those that differ
};

}  // namespace lockstep::data
