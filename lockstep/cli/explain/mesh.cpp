// lockstep explain mesh: which rank is where in data x pipeline x tensor x context x expert, and
// the groups of every axis.
#include "lockstep/plan/mesh/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/drawing.h"
#include "lockstep/base/text/text.h"
#include "lockstep/cli/explain/topics.h"
#include "lockstep/cli/number_lists.h"
#include "lockstep/cli/text_table.h"

namespace lockstep::cli {
namespace {

using plan::Axis;

constexpr int kMostPrintedRanks = 32;
constexpr std::size_t kMostPrintedGroups = 6;
constexpr int kMostDrawnMeshRanks = 64;
constexpr int kMostDrawnColumns = 16;
constexpr double kMeshLeft = 96;
constexpr double kMeshWidth = 1000;
constexpr double kMeshRow = 66;
constexpr double kAxisHead = 40;
constexpr double kAxisRow = 22;
constexpr std::string_view kGroupColours[] = {"blue", "orange", "teal", "purple", "rose", "grey"};

struct MeshTopic {
  int ranks = 16;
  plan::MeshShape shape{.data = 0};
  int ranks_per_node = 8;
  std::string svg;
};

// What the ranks of an axis exchange, and how often.
std::string_view exchange_of(Axis axis) {
  switch (axis) {
    case Axis::kTensor:
      return "all-reduce twice in every layer, forward and backward";
    case Axis::kContext:
      return "keys and values in every layer";
    case Axis::kExpert:
      return "all-to-all of tokens in every layer with experts";
    case Axis::kData:
      return "gradients, once per step";
    case Axis::kPipeline:
      return "activations of one layer, per micro-batch";
  }
  return "";
}

std::vector<int> nodes_of(const MeshTopic& topic) {
  std::vector<int> nodes;
  for (int rank = 0; rank < topic.ranks; ++rank) nodes.push_back(rank / topic.ranks_per_node);
  return nodes;
}

std::vector<Axis> used_axes(const plan::Mesh& mesh) {
  std::vector<Axis> axes;
  for (const Axis axis : plan::kAllAxes) {
    if (mesh.shape().extent(axis) > 1) axes.push_back(axis);
  }
  return axes;
}

// "pipeline 2 x data 4 x tensor 2"
std::string describe_mesh(const plan::Mesh& mesh) {
  std::vector<std::string> parts;
  for (const Axis axis : used_axes(mesh)) {
    parts.push_back(fmt::format("{} {}", name(axis), mesh.shape().extent(axis)));
  }
  return parts.empty() ? "one rank" : fmt::format("{}", fmt::join(parts, " x "));
}

// "[0 1] [2 3] [4 5] ..."
std::string groups_text(const plan::Mesh& mesh, Axis axis) {
  const auto groups = mesh.groups(axis);
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), kMostPrintedGroups); ++i) {
    std::vector<int> members = groups[i];
    const bool cut = members.size() > kMostPrintedGroups;
    if (cut) members.resize(kMostPrintedGroups);
    text += fmt::format("{}[{}{}]", i > 0 ? " " : "", fmt::join(members, " "), cut ? " ..." : "");
  }
  return groups.size() > kMostPrintedGroups ? text + " ..." : text;
}

void print_mesh(const MeshTopic& topic, const plan::Mesh& mesh) {
  const std::vector<int> nodes = nodes_of(topic);
  fmt::print("{} ranks: {}, {} on a node\n\n", mesh.ranks(), describe_mesh(mesh),
             topic.ranks_per_node);
  TextTable axes("lrll");
  axes.row({"axis", "ranks", "where", "groups", "what they exchange"});
  for (const Axis axis : used_axes(mesh)) {
    axes.row({std::string(name(axis)), fmt::to_string(mesh.shape().extent(axis)),
              mesh.crosses_nodes(axis, nodes) ? "crosses nodes" : "inside nodes",
              groups_text(mesh, axis), std::string(exchange_of(axis))});
  }
  fmt::print("{}\n", axes.text());
  TextTable places("rrrrrrr");
  std::vector<std::string> head = {"rank", "node"};
  for (const Axis axis : used_axes(mesh)) head.emplace_back(name(axis));
  places.row(head);
  for (int rank = 0; rank < std::min(mesh.ranks(), kMostPrintedRanks); ++rank) {
    std::vector<std::string> row = {fmt::to_string(rank),
                                    fmt::to_string(nodes[static_cast<std::size_t>(rank)])};
    for (const Axis axis : used_axes(mesh)) {
      row.push_back(fmt::to_string(mesh.coordinates_of(rank).at(axis)));
    }
    places.row(row);
  }
  fmt::print("{}", places.text());
  if (mesh.ranks() > kMostPrintedRanks) {
    fmt::print("  ... and {} ranks more\n", mesh.ranks() - kMostPrintedRanks);
  }
}

// A row for every stage, and its ranks from left to right.
struct MeshGrid {
  double left = 0;
  double top = 0;
  double column = 0;
  double row = 0;
  int columns = 1;

  Drawing::Area at(int rank) const {
    return {left + column * (rank % columns), top + row * (rank / columns), column, row};
  }
};

Drawing::Area inset(const Drawing::Area& area, double by) {
  return {area.x + by, area.y + by, area.width - 2 * by, area.height - 2 * by};
}

// A band behind the ranks of each node, cut at the ends of rows.
void draw_nodes(Drawing& drawing, const MeshGrid& grid, const std::vector<int>& nodes) {
  const auto same_band = [&](int rank, int next) {
    return nodes[static_cast<std::size_t>(rank)] == nodes[static_cast<std::size_t>(next)] &&
           rank / grid.columns == next / grid.columns;
  };
  const auto ranks = static_cast<int>(nodes.size());
  for (int first = 0; first < ranks;) {
    int last = first;
    while (last + 1 < ranks && same_band(first, last + 1)) ++last;
    Drawing::Area band = grid.at(first);
    band.width *= last - first + 1;
    band = inset(band, 2);
    drawing.box(band, "band", 4);
    drawing.text(band.x + 7, band.y + 13,
                 fmt::format("node {}", nodes[static_cast<std::size_t>(first)]), "tiny quiet");
    first = last + 1;
  }
}

// "d1 c0 t1"
std::string place_label(const plan::Mesh& mesh, int rank) {
  std::vector<std::string> parts;
  for (const Axis axis : used_axes(mesh)) {
    if (axis == Axis::kPipeline) continue;  // the row says it
    parts.push_back(fmt::format("{}{}", name(axis)[0], mesh.coordinates_of(rank).at(axis)));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

void draw_ranks(Drawing& drawing, const plan::Mesh& mesh, const MeshGrid& grid) {
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    if (rank % grid.columns == 0) {
      drawing.text(grid.left - 12, grid.at(rank).centre() + 8,
                   fmt::format("stage {}", mesh.coordinates_of(rank).pipeline), "end small quiet");
    }
    Drawing::Area area = inset(grid.at(rank), 6);
    area.y += 12;
    area.height -= 12;
    drawing.box(area, "card", 3);
    drawing.text(area.middle(), area.y + 16, fmt::to_string(rank), "middle strong");
    drawing.text(area.middle(), area.y + 31, place_label(mesh, rank), "middle tiny quiet");
  }
}

// The same ranks, small: those of one group have one colour.
void draw_axis(Drawing& drawing, const plan::Mesh& mesh, Axis axis, MeshGrid grid,
               bool crosses_nodes) {
  const auto groups = mesh.groups(axis);
  drawing.text(grid.left, grid.top, fmt::format("{}", name(axis)), "strong");
  drawing.text(
      grid.left + 70, grid.top,
      fmt::format("{} of {}, {}", counted(groups.size(), "group"), mesh.shape().extent(axis),
                  crosses_nodes ? "across nodes" : "inside nodes"),
      "small quiet");
  drawing.text(grid.left, grid.top + 17, exchange_of(axis), "small quiet");
  grid.top += 26;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::size_t colours = std::size(kGroupColours);
    const std::string style =
        fmt::format("{}{}", i / colours % 2 == 1 ? "soft " : "", kGroupColours[i % colours]);
    for (const int rank : groups[i]) {
      const Drawing::Area area = inset(grid.at(rank), 1);
      drawing.box(area, style, 2);
      drawing.label(area, fmt::to_string(rank), style.starts_with("soft") ? "tiny" : "tiny on");
    }
  }
}

std::string draw_mesh(const MeshTopic& topic, const plan::Mesh& mesh) {
  const int columns = mesh.ranks() / mesh.shape().pipeline;
  if (mesh.ranks() > kMostDrawnMeshRanks || columns > kMostDrawnColumns) {
    fail(ErrorCode::kInvalidArgument,
         "--svg draws up to {} ranks and {} of a stage, not {} and {}; without it the mesh is "
         "printed",
         kMostDrawnMeshRanks, kMostDrawnColumns, mesh.ranks(), columns);
  }
  const std::vector<int> nodes = nodes_of(topic);
  Drawing drawing(kMeshWidth,
                  fmt::format("A mesh of {} ranks: {}", mesh.ranks(), describe_mesh(mesh)),
                  "Ranks in rows of pipeline stages with the nodes that they are on, and for every "
                  "axis the same ranks coloured by group.");
  drawing.note(
      "Ranks are numbered with tensor fastest and pipeline slowest, so the axes that exchange most "
      "are inside nodes. Below, ranks of one colour are one group: they differ on that axis only.");
  const MeshGrid grid{kMeshLeft, drawing.notes_end() + 14,
                      std::min((kMeshWidth - kMeshLeft - Drawing::kMargin) / columns, 110.0),
                      kMeshRow, columns};
  draw_nodes(drawing, grid, nodes);
  draw_ranks(drawing, mesh, grid);
  double y = grid.top + kMeshRow * mesh.shape().pipeline + kAxisHead;
  const double panel_width = (kMeshWidth - 2 * Drawing::kMargin) / 2;
  const double panel_height = kAxisRow * mesh.shape().pipeline + 26 + kAxisHead;
  const std::vector<Axis> axes = used_axes(mesh);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const bool right = i % 2 == 1;
    const MeshGrid small{Drawing::kMargin + (right ? panel_width : 0), y,
                         std::min((panel_width - 30) / columns, 44.0), kAxisRow, columns};
    draw_axis(drawing, mesh, axes[i], small, mesh.crosses_nodes(axes[i], nodes));
    if (right || i + 1 == axes.size()) y += panel_height;
  }
  return drawing.finish(y - kAxisHead + 20);
}

void explain_mesh(const MeshTopic& topic) {
  if (topic.ranks > kMostRanks) {
    fail(ErrorCode::kInvalidArgument, "{} ranks are more than explain takes; up to {} are fine",
         topic.ranks, kMostRanks);
  }
  if (topic.ranks_per_node < 1) {
    fail(ErrorCode::kInvalidArgument, "--ranks-per-node is {}; 1 or more are fine",
         topic.ranks_per_node);
  }
  const plan::Mesh mesh = plan::mesh_of(topic.ranks, topic.shape);
  if (topic.svg.empty()) return print_mesh(topic, mesh);
  write_picture(topic.svg, draw_mesh(topic, mesh));
}

}  // namespace

void add_explain_mesh(CLI::App& explain, int& exit_code) {
  auto* command = explain.add_subcommand(
      "mesh", "Where ranks are in data x pipeline x tensor x context x expert, and their groups");
  auto topic = std::make_shared<MeshTopic>();
  command->add_option("-n,--ranks", topic->ranks, "Number of ranks")->capture_default_str();
  command->add_option("--tensor", topic->shape.tensor, "Ranks that divide every matrix")
      ->capture_default_str();
  command->add_option("--pipeline", topic->shape.pipeline, "Stages that divide the layers")
      ->capture_default_str();
  command->add_option("--context", topic->shape.context, "Ranks that divide a sequence's tokens")
      ->capture_default_str();
  command->add_option("--expert", topic->shape.expert, "Ranks that divide the experts")
      ->capture_default_str();
  command
      ->add_option("--data", topic->shape.data,
                   "Ranks that divide the batch; 0: what the others leave")
      ->capture_default_str();
  command->add_option("--ranks-per-node", topic->ranks_per_node, "Ranks on each node")
      ->capture_default_str();
  add_svg_flag(*command, topic->svg);
  command->footer("Example:\n  lockstep explain mesh --ranks 16 --tensor 2 --pipeline 2");
  command->callback([topic, &exit_code] {
    exit_code = 0;
    explain_mesh(*topic);
  });
}

}  // namespace lockstep::cli
