#include "lockstep/cli/explain/tree_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/drawing.h"
#include "lockstep/base/text/text.h"
#include "lockstep/comm/schedule/symbolic.h"

namespace lockstep::cli {
namespace {

using schedule::Delivery;
using schedule::Schedule;

constexpr double kLeafWidth = 50;
constexpr double kLevelHeight = 88;
constexpr double kTreeHead = 74;
constexpr double kNodeRadius = 15;

// Who sends to whom in which round: up to be added, and down again.
struct TreeEdge {
  int child = 0;
  int up_round = -1;
  int down_round = -1;
};

struct RankTree {
  std::vector<int> parents;  // -1: a root
  std::vector<std::vector<TreeEdge>> children;
  std::vector<int> depths;
  std::vector<double> places;  // in leaves
  int root = -1;
  int deepest = 0;
  double leaves = 0;
};

[[noreturn]] void fail_no_tree(const Schedule& schedule) {
  fail(ErrorCode::kInvalidArgument,
       "the messages of {} by {} form no tree; --view rounds shows every algorithm",
       name(schedule.collective), schedule.algorithm);
}

void place_under(RankTree& tree, int rank, int depth) {
  const auto index = static_cast<std::size_t>(rank);
  tree.depths[index] = depth;
  tree.deepest = std::max(tree.deepest, depth);
  double first = tree.leaves;
  for (const TreeEdge& edge : tree.children[index]) place_under(tree, edge.child, depth + 1);
  if (tree.children[index].empty()) {
    tree.places[index] = first;
    tree.leaves += 1;
  } else {
    tree.places[index] = (first + tree.leaves - 1) / 2;
  }
}

RankTree tree_of(const Schedule& schedule) {
  const auto ranks = static_cast<std::size_t>(schedule.shape.ranks);
  RankTree tree{.parents = std::vector<int>(ranks, -1),
                .children = std::vector<std::vector<TreeEdge>>(ranks),
                .depths = std::vector<int>(ranks, -1),
                .places = std::vector<double>(ranks)};
  schedule::SymbolicRun run(schedule, schedule::Placement::kOutOfPlace);
  for (int round = 0; round < run.rounds(); ++round) {
    run.run_round(round);
    for (const Delivery& delivery : run.deliveries()) {
      const auto from = static_cast<std::size_t>(delivery.from);
      if (delivery.combined) {
        if (tree.parents[from] >= 0) fail_no_tree(schedule);
        tree.parents[from] = delivery.to;
        tree.children[static_cast<std::size_t>(delivery.to)].push_back(
            {.child = delivery.from, .up_round = round});
        continue;
      }
      auto& edges = tree.children[from];
      const auto edge = std::ranges::find(edges, delivery.to, &TreeEdge::child);
      if (edge == edges.end()) fail_no_tree(schedule);
      edge->down_round = round;
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (tree.parents[rank] >= 0) continue;
    if (tree.root >= 0) fail_no_tree(schedule);
    tree.root = static_cast<int>(rank);
  }
  if (tree.root < 0) fail_no_tree(schedule);
  for (auto& edges : tree.children) {
    std::ranges::reverse(edges);  // the largest part of the tree first
  }
  place_under(tree, tree.root, 0);
  if (std::ranges::find(tree.depths, -1) != tree.depths.end()) fail_no_tree(schedule);
  return tree;
}

void draw_tree(Drawing& drawing, const RankTree& tree, double left, double tree_top, bool up) {
  const auto at = [&](int rank) -> Drawing::Point {
    const auto index = static_cast<std::size_t>(rank);
    return {left + kLeafWidth * (tree.places[index] + 0.5),
            tree_top + kLevelHeight * tree.depths[index]};
  };
  for (std::size_t parent = 0; parent < tree.children.size(); ++parent) {
    for (const TreeEdge& edge : tree.children[parent]) {
      const Drawing::Point top = at(static_cast<int>(parent));
      const Drawing::Point low = at(edge.child);
      const double slope = (low.x - top.x) / kLevelHeight;
      const double clear = kNodeRadius + 3;
      const Drawing::Point upper{top.x + slope * clear, top.y + clear};
      const Drawing::Point lower{low.x - slope * clear, low.y - clear};
      if (up) {
        drawing.arrow(lower, upper, "orange", 0, "thick");
      } else {
        drawing.arrow(upper, lower, "purple", 0, "thick");
      }
      // The round, in a small card on the line, nearer to the child.
      const Drawing::Point middle{top.x + (low.x - top.x) * 0.56, top.y + (low.y - top.y) * 0.56};
      drawing.circle(middle, 9.5, "card line-card");
      drawing.text(middle.x, middle.y + 4, fmt::to_string(up ? edge.up_round : edge.down_round),
                   fmt::format("middle small strong ink-{}", up ? "orange" : "purple"));
    }
  }
  for (std::size_t rank = 0; rank < tree.depths.size(); ++rank) {
    const Drawing::Point centre = at(static_cast<int>(rank));
    drawing.circle(centre, kNodeRadius, "card line-axis");
    drawing.text(centre.x, centre.y + 4.5, fmt::to_string(rank), "middle strong");
  }
}

}  // namespace

std::string draw_trees(const Schedule& schedule, std::string title, std::string_view note) {
  const RankTree tree = tree_of(schedule);
  const double panel = std::max(kLeafWidth * tree.leaves, 220.0);
  const double width = std::max(2 * Drawing::kMargin + 2 * panel + 60, 820.0);
  Drawing drawing(
      width, std::move(title),
      "The tree of ranks twice: vectors are added on the way up, the sum is sent on the "
      "way down. The number on an arrow is the round.");
  drawing.note(note);
  const double top = drawing.notes_end() + kTreeHead;
  const double left = width / 4 - kLeafWidth * tree.leaves / 2;
  const double right = 3 * width / 4 - kLeafWidth * tree.leaves / 2;
  drawing.text(width / 4, top - 34, "up: every rank adds what its children send",
               "middle ink-orange strong");
  drawing.text(3 * width / 4, top - 34, "down: the sum goes back to all",
               "middle ink-purple strong");
  const double bottom = top + kLevelHeight * tree.deepest + kNodeRadius;
  drawing.line({width / 2, top - 48}, {width / 2, bottom}, "line-grid");
  draw_tree(drawing, tree, left, top, true);
  draw_tree(drawing, tree, right, top, false);
  drawing.text(Drawing::kMargin, bottom + 32,
               "The number on an arrow is its round; every arrow carries the whole vector.",
               "small quiet");
  return drawing.finish(bottom + 52);
}

}  // namespace lockstep::cli
