// How often each word occurs in texts.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::data {

// Counts words by GPT-2's pattern; bytes that are not UTF-8 are skipped. The texts must outlive it.
class WordCounts {
 public:
  explicit WordCounts(std::span<const std::string_view> texts);

  // In the order in which the words first occur.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Counted& one : words_) visit(one.word, one.count);
  }

 private:
  struct Counted {
    std::string_view word;
    std::uint64_t hash = 0;
    std::uint64_t count = 0;
  };
  void add(std::string_view word);
  void grow();

  std::vector<Counted> words_;
  std::vector<std::uint32_t> slots_;  // index into words_ plus 1; 0: free
};

}  // namespace lockstep::data
