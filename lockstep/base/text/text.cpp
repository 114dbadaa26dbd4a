#include "lockstep/base/text/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

// Levenshtein's distance, one row at a time.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest(std::string_view typed, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t fewest = std::max<std::size_t>(2, typed.size() / 2) + 1;
  for (std::string_view candidate : candidates) {
    const std::size_t distance = edits(typed, candidate);
    if (distance < fewest) {
      fewest = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string_view> candidates) {
  const std::string_view near = nearest(typed, candidates);
  return near.empty() ? std::string() : fmt::format(" (did you mean {}?)", near);
}

std::string counted(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string join_ranks(std::span<const int> ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += fmt::to_string(ranks[i]);
  }
  return text;
}

std::vector<std::string_view> split_text(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace lockstep
