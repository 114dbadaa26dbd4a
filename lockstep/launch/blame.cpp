#include "lockstep/launch/blame.h"

#include <fmt/ranges.h>

#include <charconv>

#include "lockstep/base/text/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kOne = "  at fault: rank ";
constexpr std::string_view kSeveral = "  at fault: ranks ";

}  // namespace

std::string blame_line(std::span<const int> ranks) {
  return fmt::format("{}{}", ranks.size() == 1 ? kOne : kSeveral, fmt::join(ranks, ", "));
}

std::vector<int> parse_blame(std::string_view line) {
  std::vector<int> ranks;
  for (const std::string_view start : {kOne, kSeveral}) {
    if (!line.starts_with(start)) continue;
    for (const std::string_view part : split_text(line.substr(start.size()), ',')) {
      const std::string_view number = trim(part);
      int rank = 0;
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
      if (error != std::errc() || end != number.data() + number.size() || rank < 0) return {};
      ranks.push_back(rank);
    }
  }
  return ranks;
}

}  // namespace lockstep
