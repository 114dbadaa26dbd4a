#include "lockstep/cli/explain/words.h"

#include <fmt/format.h>

namespace lockstep::cli {
namespace {

using schedule::Cell;
using schedule::Schedule;

constexpr int kMostContributionsNamed = 4;

enum class Unit { kVector, kChunk, kBlock, kPair };

Unit unit_of(const Schedule& schedule) {
  if (schedule.collective == Collective::kAllToAll) return Unit::kPair;
  if (schedule::chunk_numbers(schedule) != schedule.chunks) return Unit::kBlock;
  return schedule.chunks == 1 ? Unit::kVector : Unit::kChunk;
}

}  // namespace

std::string name_chunk(const Schedule& schedule, int chunk) {
  switch (unit_of(schedule)) {
    case Unit::kVector:
      return "vector";
    case Unit::kChunk:
      return fmt::format("chunk {}", chunk);
    case Unit::kBlock:
      return fmt::format("block {}", chunk);
    case Unit::kPair:
      return fmt::format("{}>{}", chunk / schedule.shape.ranks, chunk % schedule.shape.ranks);
  }
  return {};
}

std::string name_chunks(const Schedule& schedule, const std::vector<Cell>& cells) {
  const Unit unit = unit_of(schedule);
  if (cells.size() == 1 || unit == Unit::kPair) {
    std::string text;
    for (const Cell& cell : cells) {
      if (!text.empty()) text += ", ";
      text += name_chunk(schedule, cell.chunk);
    }
    return text;
  }
  return fmt::format("{}s {}-{}", unit == Unit::kBlock ? "block" : "chunk", cells.front().chunk,
                     cells.back().chunk);
}

std::string name_contributions(const Schedule& schedule, const Cell& cell) {
  const int ranks = schedule.shape.ranks;
  if (!cell.defined()) return "-";
  if (!reduces(schedule.collective)) return "yes";
  std::vector<int> from;
  for (int rank = 0; rank < ranks; ++rank) {
    if (cell.from.has(rank)) from.push_back(rank);
  }
  const int count = static_cast<int>(from.size());
  if (count == ranks && ranks > 1) return "all";
  if (count > 2 && from.back() - from.front() == count - 1) {
    return fmt::format("{}-{}", from.front(), from.back());
  }
  if (count <= kMostContributionsNamed) return fmt::format("{}", fmt::join(from, "+"));
  return fmt::format("{} of {}", count, ranks);
}

int shown_chunks(const Schedule& schedule) {
  return schedule.collective == Collective::kAllToAll ? schedule.shape.ranks
                                                      : chunk_numbers(schedule);
}

int shown_chunk(const Schedule& schedule, int rank, int column) {
  return schedule.collective == Collective::kAllToAll ? column * schedule.shape.ranks + rank
                                                      : column;
}

}  // namespace lockstep::cli
