#include "lockstep/cli/explain/schedule_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/drawing.h"
#include "lockstep/base/text/text.h"
#include "lockstep/cli/explain/chunk_cells.h"
#include "lockstep/cli/explain/tree_picture.h"
#include "lockstep/cli/explain/words.h"
#include "lockstep/comm/schedule/verify.h"

namespace lockstep::cli {
namespace {

using schedule::Delivery;
using schedule::Schedule;
using schedule::SymbolicRun;

constexpr std::array<std::string_view, 3> kViewNames = {"rounds", "ring", "tree"};
constexpr int kMostOnACircle = 12;
constexpr int kMostOnATree = 32;

std::string_view colour_of_message(const Delivery& delivery) {
  return delivery.combined ? "orange" : "purple";
}

// "sends 1/2 S", of the rank that sends most in the round just run.
std::string share_text(const Schedule& schedule, const SymbolicRun& run) {
  std::map<int, std::size_t> chunks;
  for (const Delivery& delivery : run.deliveries()) chunks[delivery.from] += delivery.cells.size();
  std::size_t most = 0;
  for (const auto& [_, count] : chunks) most = std::max(most, count);
  if (most == 0) return "local";
  const double share = static_cast<double>(most) * chunk_share(schedule);
  const double inverse = 1 / share;
  if (std::abs(inverse - std::round(inverse)) < 1e-9) {
    return share == 1 ? "S a rank" : fmt::format("S/{:.0f} a rank", inverse);
  }
  return fmt::format("{:.3g} S a rank", share);
}

std::string totals_note(const Schedule& schedule) {
  const schedule::Traffic traffic = count_traffic(schedule);
  return fmt::format("{} {} of communication; the busiest rank sends {:.4g} S, S being the vector.",
                     schedule::find_algorithm(schedule.collective, schedule.algorithm).summary,
                     counted(static_cast<std::size_t>(traffic.rounds), "round"),
                     traffic.sent_by_busiest());
}

std::string heading_of(const Schedule& schedule) {
  return fmt::format("{} by {}, {}", name(schedule.collective), schedule.algorithm,
                     counted(static_cast<std::size_t>(schedule.shape.ranks), "rank"));
}

// ---- rounds

constexpr double kRoundsLeft = 112;  // for the rounds' names
constexpr double kRoundsHead = 76;   // for the nodes' and ranks' names
constexpr double kStripHeight = 20;
constexpr double kBetweenStrips = 62;
constexpr double kBetweenColumns = 26;

struct RoundColumns {
  int ranks = 0;
  double strip = 0;  // width of a rank's cells
  double x(int rank) const { return kRoundsLeft + rank * (strip + kBetweenColumns); }
  double middle(int rank) const { return x(rank) + strip / 2; }
  double right() const { return x(ranks - 1) + strip; }
};

RoundColumns columns_of(const Schedule& schedule) {
  const int chunks = shown_chunks(schedule);
  const double strip = std::clamp(18.0 * chunks, 60.0, std::max(112.0, 6.0 * chunks));
  return {.ranks = schedule.shape.ranks, .strip = strip};
}

// A band behind the ranks of each node.
void draw_machines(Drawing& drawing, const Schedule& schedule, const RoundColumns& columns,
                   double top, double bottom) {
  const std::vector<int>& machines = schedule.shape.machines;
  for (std::size_t first = 0; first < machines.size();) {
    std::size_t end = first + 1;
    while (end < machines.size() && machines[end] == machines[first]) ++end;
    const double x = columns.x(static_cast<int>(first)) - 9;
    const double right = columns.x(static_cast<int>(end) - 1) + columns.strip + 9;
    drawing.box({x, top - 52, right - x, bottom - top + 62}, "band", 8);
    drawing.text((x + right) / 2, top - 34, fmt::format("node {}", machines[first]),
                 "middle small quiet strong");
    first = end;
  }
}

bool crosses(const Schedule& schedule, const Delivery& delivery) {
  const std::vector<int>& machines = schedule.shape.machines;
  if (machines.empty()) return false;
  return machines[static_cast<std::size_t>(delivery.from)] !=
         machines[static_cast<std::size_t>(delivery.to)];
}

void draw_row(Drawing& drawing, const Schedule& schedule, const SymbolicRun& run,
              const RoundColumns& columns, double y) {
  for (int rank = 0; rank < columns.ranks; ++rank) {
    draw_cells(drawing, {columns.x(rank), y, columns.strip, kStripHeight},
               cells_of(schedule, run, rank), columns.ranks);
  }
}

std::string draw_rounds(const Schedule& schedule) {
  const RoundColumns columns = columns_of(schedule);
  SymbolicRun run(schedule, schedule::Placement::kOutOfPlace);
  const double width = std::max(columns.right() + Drawing::kMargin + 8, 860.0);
  Drawing drawing(width, heading_of(schedule),
                  "Ranks side by side; time runs down. Each strip is what a rank has of the vector "
                  "after a round, each arrow a message.");
  drawing.note(totals_note(schedule));
  if (!schedule.shape.machines.empty()) drawing.note("Thick arrows go from node to node.");
  add_cell_rules(drawing);
  const double top =
      drawing.notes_end() + (schedule.shape.machines.empty() ? kRoundsHead - 28 : kRoundsHead);
  const double bottom = top + run.rounds() * (kStripHeight + kBetweenStrips) + kStripHeight;
  draw_machines(drawing, schedule, columns, top, bottom);
  for (int rank = 0; rank < columns.ranks; ++rank) {
    drawing.text(columns.middle(rank), top - 12, fmt::format("rank {}", rank),
                 "middle strong small");
    drawing.line({columns.middle(rank), top}, {columns.middle(rank), bottom},
                 "line-axis thin dashed");
  }
  drawing.text(Drawing::kMargin, top + 14, "at the start", "small quiet");
  double y = top;
  draw_row(drawing, schedule, run, columns, y);
  for (int round = 0; round < run.rounds(); ++round) {
    run.run_round(round);
    const double next = y + kStripHeight + kBetweenStrips;
    drawing.text(Drawing::kMargin, y + kStripHeight + kBetweenStrips / 2 - 2,
                 fmt::format("round {}", round), "strong");
    drawing.text(Drawing::kMargin, y + kStripHeight + kBetweenStrips / 2 + 13,
                 share_text(schedule, run), "small quiet");
    for (const Delivery& delivery : run.deliveries()) {
      // Beside the middle, towards the other: so that two that swap do not meet at one point.
      const double shift = (delivery.to > delivery.from ? 1 : -1) * columns.strip / 5;
      drawing.arrow({columns.middle(delivery.from) + shift, y + kStripHeight + 2},
                    {columns.middle(delivery.to) - shift, next - 2}, colour_of_message(delivery), 0,
                    crosses(schedule, delivery) ? "thick" : "");
    }
    y = next;
    draw_row(drawing, schedule, run, columns, y);
  }
  drawing.legend(Drawing::kMargin, bottom + 34, cell_keys(schedule));
  return drawing.finish(bottom + 54);
}

// ---- ring

constexpr double kPanelGap = 18;
constexpr double kPanelHead = 34;
constexpr double kCellsRoom = 44;  // above and below the ring

struct RingPanel {
  double x = 0, y = 0;
  double radius = 0;
  double strip = 0;
  int ranks = 0;

  // From the centre of the ring. Half a step to the left of the top, so that four ranks stand at
  // the corners of a square.
  Drawing::Point offset(int rank) const {
    const double angle = 2 * std::numbers::pi * (rank - 0.5) / ranks - std::numbers::pi / 2;
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }
  // How far ranks stand to the sides, above and below.
  double half_width() const {
    return farthest([&](int rank) { return offset(rank).x; });
  }
  double above() const {
    return farthest([&](int rank) { return -offset(rank).y; });
  }
  double below() const {
    return farthest([&](int rank) { return offset(rank).y; });
  }
  double side() const { return 2 * half_width() + strip + 40; }
  double height() const { return kPanelHead + above() + below() + 2 * kCellsRoom; }
  Drawing::Point centre() const { return {x + side() / 2, y + kPanelHead + kCellsRoom + above()}; }
  Drawing::Point at(int rank) const {
    return {centre().x + offset(rank).x, centre().y + offset(rank).y};
  }

 private:
  template <class Measure>
  double farthest(Measure measure) const {
    double most = 0;
    for (int rank = 0; rank < ranks; ++rank) most = std::max(most, measure(rank));
    return most;
  }
};

// From the edge of one circle to that of the other, and what it carries.
void draw_ring_message(Drawing& drawing, const Schedule& schedule, const RingPanel& panel,
                       const Delivery& delivery) {
  const Drawing::Point from = panel.at(delivery.from);
  const Drawing::Point to = panel.at(delivery.to);
  const double length = std::hypot(to.x - from.x, to.y - from.y);
  constexpr double kClear = 21;
  const Drawing::Point ahead{(to.x - from.x) / length, (to.y - from.y) / length};
  const double bend = panel.radius / 8;
  drawing.arrow({from.x + kClear * ahead.x, from.y + kClear * ahead.y},
                {to.x - kClear * ahead.x, to.y - kClear * ahead.y}, colour_of_message(delivery),
                bend, "thick");
  const Drawing::Point centre = panel.centre();
  const Drawing::Point middle{(from.x + to.x) / 2, (from.y + to.y) / 2};
  const double inward = std::hypot(centre.x - middle.x, centre.y - middle.y);
  if (inward == 0) return;
  // Towards the middle of the ring, where there is space; words are wider than high.
  const std::string chunks = name_chunks(schedule, delivery.cells);
  const Drawing::Point inside{(centre.x - middle.x) / inward, (centre.y - middle.y) / inward};
  const double shift =
      6 + 5 * std::abs(inside.y) + std::abs(inside.x) * Drawing::text_width(chunks, 11.5) / 2;
  drawing.text(middle.x + inside.x * shift, middle.y + inside.y * shift + 4, chunks,
               fmt::format("middle small strong ink-{}", colour_of_message(delivery)));
}

void draw_ring_panel(Drawing& drawing, const Schedule& schedule, const SymbolicRun& run,
                     const RingPanel& panel, std::string_view title) {
  drawing.box({panel.x, panel.y, panel.side(), panel.height()}, "band", 8);
  drawing.text(panel.x + 12, panel.y + 22, title, "strong");
  for (const Delivery& delivery : run.deliveries()) {
    draw_ring_message(drawing, schedule, panel, delivery);
  }
  for (int rank = 0; rank < panel.ranks; ++rank) {
    const Drawing::Point at = panel.at(rank);
    drawing.circle(at, 15, "card line-axis");
    drawing.text(at.x, at.y + 4.5, fmt::to_string(rank), "middle strong");
    // Cells outside the ring: above the upper half, below the lower one.
    const bool above = at.y < panel.centre().y - 1;
    draw_cells(drawing, {at.x - panel.strip / 2, above ? at.y - 34 : at.y + 20, panel.strip, 14},
               cells_of(schedule, run, rank), panel.ranks);
  }
}

std::string draw_ring(const Schedule& schedule) {
  const int ranks = schedule.shape.ranks;
  if (ranks > kMostOnACircle) {
    fail(ErrorCode::kInvalidArgument, "--view ring takes up to {} ranks; --view rounds takes more",
         kMostOnACircle);
  }
  SymbolicRun run(schedule, schedule::Placement::kOutOfPlace);
  RingPanel panel{.radius = std::max(92.0, 18.0 * ranks),
                  .strip = std::clamp(17.0 * shown_chunks(schedule), 40.0, 96.0),
                  .ranks = ranks};
  const int in_a_row = std::clamp(run.rounds() / 2, 1, 4);
  const int rows = (run.rounds() + in_a_row - 1) / in_a_row;
  const double width =
      std::max(2 * Drawing::kMargin + in_a_row * panel.side() + (in_a_row - 1) * kPanelGap, 720.0);
  Drawing drawing(width, heading_of(schedule),
                  "One ring of ranks for every round. Arrows carry chunks to the next rank; the "
                  "strip beside a rank is what it has after the round.");
  drawing.note(totals_note(schedule));
  add_cell_rules(drawing);
  const double top = drawing.notes_end() + 24;
  const double left = (width - in_a_row * panel.side() - (in_a_row - 1) * kPanelGap) / 2;
  for (int round = 0; round < run.rounds(); ++round) {
    run.run_round(round);
    panel.x = left + (round % in_a_row) * (panel.side() + kPanelGap);
    panel.y = top + (round / in_a_row) * (panel.height() + kPanelGap);
    const bool adds = std::ranges::any_of(run.deliveries(), &Delivery::combined);
    draw_ring_panel(drawing, schedule, run, panel,
                    fmt::format("round {}: {}", round, adds ? "add" : "pass on"));
  }
  const double bottom = top + rows * panel.height() + (rows - 1) * kPanelGap;
  drawing.legend(Drawing::kMargin, bottom + 30, cell_keys(schedule));
  return drawing.finish(bottom + 50);
}

}  // namespace

ScheduleView schedule_view_from_name(std::string_view text) {
  const auto found = std::ranges::find(kViewNames, text);
  if (found == kViewNames.end()) {
    fail(ErrorCode::kInvalidArgument, "unknown view '{}'{}; expected one of {}", text,
         did_you_mean(text, kViewNames), fmt::join(kViewNames, ", "));
  }
  return static_cast<ScheduleView>(found - kViewNames.begin());
}

ScheduleView usual_view(const Schedule& schedule) {
  if (schedule.algorithm == "ring" && schedule.shape.ranks <= kMostOnACircle &&
      schedule.shape.ranks > 2) {
    return ScheduleView::kRing;
  }
  if (schedule.algorithm == "tree" && schedule.collective == Collective::kAllReduce &&
      schedule.shape.ranks <= kMostOnATree && schedule.shape.ranks > 1) {
    return ScheduleView::kTree;
  }
  return ScheduleView::kRounds;
}

std::string draw_schedule(const Schedule& schedule, ScheduleView view) {
  switch (view) {
    case ScheduleView::kRing:
      return draw_ring(schedule);
    case ScheduleView::kTree:
      return draw_trees(schedule, heading_of(schedule), totals_note(schedule));
    case ScheduleView::kRounds:
      break;
  }
  return draw_rounds(schedule);
}

}  // namespace lockstep::cli
