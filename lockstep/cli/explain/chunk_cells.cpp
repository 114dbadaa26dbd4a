#include "lockstep/cli/explain/chunk_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/cli/explain/words.h"

namespace lockstep::cli {
namespace {

constexpr int kShades = 8;
constexpr double kOutlineInset = 1.5;

}  // namespace

std::vector<ChunkCell> cells_of(const schedule::Schedule& schedule,
                                const schedule::SymbolicRun& run, int rank) {
  std::vector<ChunkCell> cells;
  for (int column = 0; column < shown_chunks(schedule); ++column) {
    const int chunk = shown_chunk(schedule, rank, column);
    const schedule::Cell& cell = run.best(rank, chunk);
    ChunkCell shown;
    if (cell.defined()) {
      for (int other = 0; other < schedule.shape.ranks; ++other) {
        shown.contributions += cell.from.has(other) ? 1 : 0;
      }
      shown.complete = !reduces(schedule.collective) || shown.contributions == schedule.shape.ranks;
    }
    for (const schedule::Delivery& delivery : run.deliveries()) {
      if (delivery.to != rank) continue;
      const bool has = std::ranges::any_of(
          delivery.cells, [&](const schedule::Cell& each) { return each.chunk == chunk; });
      if (has) shown.change = delivery.combined ? CellChange::kCombined : CellChange::kReplaced;
    }
    cells.push_back(shown);
  }
  return cells;
}

void add_cell_rules(Drawing& drawing) {
  for (int shade = 1; shade <= kShades; ++shade) {
    drawing.rules(fmt::format(".shade-{} {{ fill: var(--blue); fill-opacity: {:.2f}; }}\n", shade,
                              0.08 + 0.08 * shade));
  }
  drawing.rules(".outline { fill: none; stroke-width: 2; }\n");
}

void draw_cells(Drawing& drawing, const Drawing::Area& area, const std::vector<ChunkCell>& cells,
                int ranks) {
  const double width = area.width / static_cast<double>(cells.size());
  drawing.box(area, "card line-axis", 2);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Drawing::Area at{area.x + width * static_cast<double>(i), area.y, width, area.height};
    const ChunkCell& cell = cells[i];
    if (cell.complete) {
      drawing.box(at, "teal line-card thin", 0);
    } else if (cell.contributions > 0) {
      // Doubling the ranks in a sum is a step of the same size.
      const double steps = std::log2(cell.contributions) / std::log2(ranks);
      const int shade = 1 + static_cast<int>((kShades - 1) * steps + 1e-9);
      drawing.box(at, fmt::format("shade-{} line-card thin", shade), 0);
    }
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].change == CellChange::kNone) continue;
    const Drawing::Area inside{area.x + width * static_cast<double>(i) + kOutlineInset,
                               area.y + kOutlineInset, width - 2 * kOutlineInset,
                               area.height - 2 * kOutlineInset};
    drawing.box(
        inside,
        cells[i].change == CellChange::kCombined ? "outline line-orange" : "outline line-purple",
        1);
  }
}

std::vector<Drawing::Key> cell_keys(const schedule::Schedule& schedule) {
  if (!reduces(schedule.collective)) {
    return {{"teal", "has the chunk"}, {"outline line-purple", "arrived in this round"}};
  }
  return {{"shade-2", "partial sum: the darker, the more ranks are in it"},
          {"teal", "complete sum"},
          {"outline line-orange", "just added"},
          {"outline line-purple", "just replaced"}};
}

}  // namespace lockstep::cli
