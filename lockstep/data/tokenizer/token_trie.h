// A trie of tokens: finds all of them that a text begins with.
//
// Nodes are numbered in breadth-first order, so that the children of a node follow each other:
// their bytes are one sorted stretch of an array. A step is a look into a table at the root, else a
// binary search among at most 256 bytes; there are no hashes that a file could make collide.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

class TokenTrie {
 public:
  TokenTrie() = default;
  // Empty ones are left out. Of equal ones the last one counts.
  explicit TokenTrie(std::vector<std::pair<std::string_view, TokenId>> tokens);

  // Calls visit(bytes of the token, id) for each token that `text` begins with, shortest first.
  template <class Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    if (text.empty()) return;
    std::uint32_t node = root_[static_cast<unsigned char>(text.front())];
    for (std::size_t bytes = 1; node != kNone; ++bytes) {
      if (ids_[node] >= 0) visit(bytes, ids_[node]);
      if (bytes == text.size()) return;
      node = child(node, static_cast<unsigned char>(text[bytes]));
    }
  }

 private:
  static constexpr std::uint32_t kNone = 0;  // the root is nobody's child

  std::uint32_t child(std::uint32_t node, unsigned char byte) const {
    const auto begin = labels_.begin() + first_child_[node];
    const auto end = labels_.begin() + first_child_[node + 1];
    const auto found = std::lower_bound(begin, end, byte);
    if (found == end || *found != byte) return kNone;
    return static_cast<std::uint32_t>(found - labels_.begin());
  }

  std::array<std::uint32_t, 256> root_{};   // its child for each byte
  std::vector<std::uint32_t> first_child_;  // of each node, and where the last one's children end
  std::vector<unsigned char> labels_;       // of each node: the byte that leads to it
  std::vector<TokenId> ids_;                // of each node; -1: no token ends there
};

}  // namespace lockstep::data
