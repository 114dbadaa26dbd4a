#include "lockstep/data/tokenizer/token_trie.h"

namespace lockstep::data {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, TokenId>> tokens) {
  std::erase_if(tokens, [](const auto& token) { return token.first.empty(); });
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // The tokens [begin, end) have the first `depth` bytes in common, which lead to a node.
  struct Range {
    std::size_t begin;
    std::size_t end;
    std::size_t depth;
  };
  std::vector<Range> nodes{{0, tokens.size(), 0}};
  labels_.push_back(0);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    auto [begin, end, depth] = nodes[node];
    TokenId id = -1;
    while (begin < end && tokens[begin].first.size() == depth) id = tokens[begin++].second;
    ids_.push_back(id);
    first_child_.push_back(static_cast<std::uint32_t>(nodes.size()));
    while (begin < end) {
      const char byte = tokens[begin].first[depth];
      std::size_t next = begin;
      while (next < end && tokens[next].first[depth] == byte) ++next;
      if (node == 0) {
        root_[static_cast<unsigned char>(byte)] = static_cast<std::uint32_t>(nodes.size());
      }
      labels_.push_back(static_cast<unsigned char>(byte));
      nodes.push_back({begin, next, depth + 1});
      begin = next;
    }
  }
  first_child_.push_back(static_cast<std::uint32_t>(nodes.size()));
}

}  // namespace lockstep::data
