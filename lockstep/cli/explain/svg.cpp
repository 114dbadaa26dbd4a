#include "lockstep/cli/explain/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/text/markup.h"
#include "lockstep/base/text/text.h"
#include "lockstep/cli/explain/words.h"

namespace lockstep::cli {
namespace {

using schedule::Delivery;
using schedule::Schedule;

constexpr int kLeft = 110;         // to the first rank
constexpr int kColumn = 120;       // from rank to rank
constexpr int kTop = 84;           // to the first round
constexpr int kLane = 30;          // from arrow to arrow
constexpr int kRoundPadding = 14;  // above and below a round's arrows
constexpr int kNode = 5;           // radius of a rank's dot at an arrow
constexpr int kLeastWidth = 560;   // room for the legend
constexpr std::string_view kCombine = "#c2410c";
constexpr std::string_view kMove = "#1d4ed8";

int x_of(int rank) { return kLeft + rank * kColumn; }

// Arrows that do not overlap share a lane.
std::vector<std::vector<const Delivery*>> lanes_of(const std::vector<Delivery>& deliveries) {
  std::vector<const Delivery*> sorted;
  for (const Delivery& delivery : deliveries) sorted.push_back(&delivery);
  const auto left = [](const Delivery* d) { return std::min(d->from, d->to); };
  const auto right = [](const Delivery* d) { return std::max(d->from, d->to); };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Delivery* a, const Delivery* b) {
    return std::pair(right(a) - left(a), left(a)) < std::pair(right(b) - left(b), left(b));
  });
  std::vector<std::vector<const Delivery*>> lanes;
  for (const Delivery* delivery : sorted) {
    const auto fits = [&](const std::vector<const Delivery*>& lane) {
      return std::all_of(lane.begin(), lane.end(), [&](const Delivery* other) {
        return right(other) <= left(delivery) || left(other) >= right(delivery);
      });
    };
    auto lane = std::find_if(lanes.begin(), lanes.end(), fits);
    if (lane == lanes.end()) lane = lanes.emplace(lanes.end());
    lane->push_back(delivery);
  }
  return lanes;
}

std::string arrow(const Schedule& schedule, const Delivery& delivery, int y) {
  const bool rightwards = delivery.to > delivery.from;
  const int from = x_of(delivery.from) + (rightwards ? kNode : -kNode);
  const int to = x_of(delivery.to) + (rightwards ? -kNode - 2 : kNode + 2);
  // Beside the sender, where long arrows of one round do not hide each other's labels.
  const int label = x_of(delivery.from) + (rightwards ? kColumn / 2 : -kColumn / 2);
  return fmt::format(
      "<line x1='{0}' y1='{1}' x2='{2}' y2='{1}' stroke='{3}' stroke-width='1.5' "
      "marker-end='url(#{4})'/>\n"
      "<circle cx='{5}' cy='{1}' r='{6}' fill='{3}'/>\n"
      "<text x='{7}' y='{8}' class='label' fill='{3}'>{9}</text>\n",
      from, y, to, delivery.combined ? kCombine : kMove, delivery.combined ? "combine" : "move",
      x_of(delivery.from), kNode - 1, label, y - 5,
      escape_markup(name_chunks(schedule, delivery.cells)));
}

std::string marker(std::string_view id, std::string_view colour) {
  return fmt::format(
      "<marker id='{}' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' "
      "orient='auto'><path d='M0 0 L8 4 L0 8 z' fill='{}'/></marker>\n",
      id, colour);
}

}  // namespace

std::string draw_svg(const Schedule& schedule) {
  const int ranks = schedule.shape.ranks;
  const int width = std::max(x_of(ranks - 1) + kColumn / 2 + 10, kLeastWidth);
  std::string body;
  int y = kTop;
  schedule::SymbolicRun run(schedule, schedule::Placement::kOutOfPlace);
  for (int round = 0; round < run.rounds(); ++round) {
    run.run_round(round);
    const auto lanes = lanes_of(run.deliveries());
    const int height = 2 * kRoundPadding + kLane * std::max(1, static_cast<int>(lanes.size()));
    body += fmt::format(
        "<rect x='0' y='{}' width='{}' height='{}' fill='{}'/>\n"
        "<text x='16' y='{}' class='round'>round {}</text>\n",
        y, width, height, round % 2 == 0 ? "#f3f4f6" : "#ffffff", y + height / 2 + 4, round);
    for (int rank = 0; rank < ranks; ++rank) {
      body += fmt::format("<line x1='{0}' y1='{1}' x2='{0}' y2='{2}' stroke='#d1d5db'/>\n",
                          x_of(rank), y, y + height);
    }
    int lane_y = y + kRoundPadding + kLane * 2 / 3;
    for (const auto& lane : lanes) {
      for (const Delivery* delivery : lane) body += arrow(schedule, *delivery, lane_y);
      lane_y += kLane;
    }
    y += height;
  }
  std::string heads;
  for (int rank = 0; rank < ranks; ++rank) {
    heads += fmt::format("<text x='{}' y='{}' class='rank'>rank {}</text>\n", x_of(rank), kTop - 10,
                         rank);
  }
  return fmt::format(
             "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' "
             "viewBox='0 0 {0} {1}'>\n"
             "<style>text{{font:12px sans-serif;fill:#111827}} .title{{font-size:16px;"
             "font-weight:bold}} .label{{text-anchor:middle}} .rank{{text-anchor:middle;"
             "font-weight:bold}} .round{{fill:#4b5563}}</style>\n"
             "<defs>\n{2}{3}</defs>\n"
             "<rect width='{0}' height='{1}' fill='#ffffff'/>\n"
             "<text x='16' y='28' class='title'>{4} by {5}, {6}</text>\n"
             "<text x='16' y='48'>arrows carry chunks: orange is combined with what the receiver "
             "has, blue replaces it</text>\n",
             width, y + 10, marker("combine", kCombine), marker("move", kMove),
             name(schedule.collective), schedule.algorithm,
             counted(static_cast<std::size_t>(ranks), "rank")) +
         heads + body + "</svg>\n";
}

}  // namespace lockstep::cli
