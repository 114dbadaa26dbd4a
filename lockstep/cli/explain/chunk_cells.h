// What a rank has of a vector, drawn as a strip of cells, one for each chunk: empty, a partial sum
// (the darker the more ranks are in it), or complete.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/text/drawing.h"
#include "lockstep/comm/schedule/symbolic.h"

namespace lockstep::cli {

// A cell that the round just run has changed.
enum class CellChange { kNone, kCombined, kReplaced };

struct ChunkCell {
  int contributions = 0;  // ranks whose part is in it; 0: empty
  bool complete = false;
  CellChange change = CellChange::kNone;
};

// All that a rank has after the round that was run last.
std::vector<ChunkCell> cells_of(const schedule::Schedule& schedule,
                                const schedule::SymbolicRun& run, int rank);

// The rules that the cells need; once in a drawing.
void add_cell_rules(Drawing& drawing);
void draw_cells(Drawing& drawing, const Drawing::Area& area, const std::vector<ChunkCell>& cells,
                int ranks);
// What the colours mean.
std::vector<Drawing::Key> cell_keys(const schedule::Schedule& schedule);

}  // namespace lockstep::cli
