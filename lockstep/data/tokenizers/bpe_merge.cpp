#include "lockstep/data/tokenizers/bpe_merge.h"

#include <algorithm>
#include <functional>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kLongestSearched = 48;
constexpr std::uint64_t kNoMerge = ~std::uint64_t{0};
constexpr std::uint32_t kNone = ~std::uint32_t{0};

// The rank in the upper bits and the id below, so that the smallest value has the lowest rank.
std::uint64_t rank_and_id(const Merges& merges, TokenId left, TokenId right) {
  const Merge* merge = merges.find(pair_key(left, right));
  if (merge == nullptr) return kNoMerge;
  return std::uint64_t{merge->rank} << 32 | static_cast<std::uint32_t>(merge->id);
}

void merge_by_search(const Merges& merges, std::vector<TokenId>& word, MergeWorkspace& workspace) {
  std::vector<std::uint64_t>& best = workspace.best;  // of each token with the next
  best.resize(word.size() - 1);
  for (std::size_t i = 0; i + 1 < word.size(); ++i) {
    best[i] = rank_and_id(merges, word[i], word[i + 1]);
  }
  while (!best.empty()) {
    const auto lowest = std::min_element(best.begin(), best.end());
    if (*lowest == kNoMerge) break;
    const auto at = static_cast<std::size_t>(lowest - best.begin());
    word[at] = static_cast<TokenId>(*lowest & 0xffffffffu);
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    best.erase(lowest);
    if (at < best.size()) best[at] = rank_and_id(merges, word[at], word[at + 1]);
    if (at > 0) best[at - 1] = rank_and_id(merges, word[at - 1], word[at]);
  }
}

// Tokens are a linked list. A merge removes the right token from it.
void merge_by_heap(const Merges& merges, std::vector<TokenId>& word, MergeWorkspace& workspace) {
  if (word.size() >= kNone) {
    fail(ErrorCode::kUnsupported, "a word of {} bytes is too long to be encoded", word.size());
  }
  const auto count = static_cast<std::uint32_t>(word.size());
  workspace.next.resize(count);
  workspace.previous.resize(count);
  workspace.heap.clear();
  const auto candidate_at = [&](std::uint32_t left) {
    const std::uint32_t right = workspace.next[left];
    if (right == kNone) return static_cast<const Merge*>(nullptr);
    return merges.find(pair_key(word[left], word[right]));
  };
  const auto push = [&](std::uint32_t left) {
    if (const Merge* merge = candidate_at(left)) {
      workspace.heap.push_back({merge->rank, left});
      std::push_heap(workspace.heap.begin(), workspace.heap.end(), std::greater<>());
    }
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    workspace.next[i] = i + 1 < count ? i + 1 : kNone;
    workspace.previous[i] = i > 0 ? i - 1 : kNone;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (const Merge* merge = candidate_at(i)) workspace.heap.push_back({merge->rank, i});
  }
  std::make_heap(workspace.heap.begin(), workspace.heap.end(), std::greater<>());
  constexpr TokenId kGone = -1;
  while (!workspace.heap.empty()) {
    std::pop_heap(workspace.heap.begin(), workspace.heap.end(), std::greater<>());
    const auto [rank, left] = workspace.heap.back();
    workspace.heap.pop_back();
    if (word[left] == kGone) continue;
    const Merge* merge = candidate_at(left);
    if (merge == nullptr || merge->rank != rank) continue;  // its neighbour has changed since
    const std::uint32_t right = workspace.next[left];
    word[left] = merge->id;
    word[right] = kGone;
    workspace.next[left] = workspace.next[right];
    if (workspace.next[left] != kNone) workspace.previous[workspace.next[left]] = left;
    push(left);
    if (workspace.previous[left] != kNone) push(workspace.previous[left]);
  }
  std::erase(word, kGone);
}

}  // namespace

void merge_word(const Merges& merges, std::vector<TokenId>& word, MergeWorkspace& workspace) {
  if (word.size() < 2) return;
  if (word.size() <= kLongestSearched) {
    merge_by_search(merges, word, workspace);
  } else {
    merge_by_heap(merges, word, workspace);
  }
}

}  // namespace lockstep::data
