#include "lockstep/cli/explain/cost_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/drawing.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/explain/cost.h"

namespace lockstep::cli {
namespace {

using schedule::PriceList;

constexpr double kCostWidth = 790;
constexpr double kCostLeft = 92;
constexpr double kCostRight = 640;  // names of algorithms are behind it
constexpr double kCostHeight = 250;
constexpr double kNameHeight = 13;  // between two names
constexpr int kPointsOfCurve = 96;
constexpr const char* kCostColours[] = {"blue", "orange", "teal", "purple", "rose"};

// From a range of numbers to one of coordinates, by logarithms.
struct LogAxis {
  double low, high;
  double from, to;
  double at(double value) const {
    return from + std::log(value / low) / std::log(high / low) * (to - from);
  }
};

// The colour of each algorithm that is the cheapest somewhere.
class CostColours {
 public:
  explicit CostColours(const std::vector<PriceList::Reign>& reigns) {
    for (const PriceList::Reign& reign : reigns) {
      if (std::ranges::find(winners_, reign.algorithm) == winners_.end()) {
        winners_.push_back(reign.algorithm);
      }
    }
  }
  std::string of(const schedule::Algorithm* algorithm) const {
    const auto place = std::ranges::find(winners_, algorithm) - winners_.begin();
    const bool wins = place < std::ssize(winners_) && place < std::ssize(kCostColours);
    return wins ? kCostColours[place] : "grey";
  }

 private:
  std::vector<const schedule::Algorithm*> winners_;
};

// One shape's chart, with its top at `top`; returns its bottom.
double draw_chart(Drawing& drawing, const PriceList& list, const std::string& title, double top,
                  double least, double most) {
  const std::vector<PriceList::Reign> reigns = list.reigns(most);
  const CostColours colours(reigns);
  double cheapest = list.at(least).front().seconds;
  double dearest = 0;
  for (const auto& entry : list.entries()) dearest = std::max(dearest, entry.profile.seconds(most));
  // Whole decades.
  cheapest = std::pow(10, std::floor(std::log10(cheapest)));
  dearest = std::pow(10, std::ceil(std::log10(dearest)));
  const LogAxis x{least, most, kCostLeft, kCostRight};
  const double bottom = top + 24 + kCostHeight;
  const LogAxis y{cheapest, dearest, bottom, top + 24};

  drawing.text(Drawing::kMargin, top + 10, title, "strong");
  for (double tick = cheapest; tick <= dearest * 1.001; tick *= 10) {
    drawing.line({kCostLeft, y.at(tick)}, {kCostRight, y.at(tick)}, "line-grid thin");
    drawing.text(kCostLeft - 8, y.at(tick) + 4, format_seconds(tick), "end small quiet");
  }
  constexpr double kTickFactor = 32;
  for (double tick = least; tick <= most * 1.001; tick *= kTickFactor) {
    drawing.line({x.at(tick), bottom}, {x.at(tick), bottom + 5}, "line-axis");
    drawing.text(x.at(tick), bottom + 19, format_bytes(tick), "middle small quiet");
  }
  drawing.line({kCostLeft, bottom}, {kCostRight, bottom}, "line-axis");

  // Grey ones first, so that the others are in front.
  std::vector<const PriceList::Entry*> entries;
  for (const auto& entry : list.entries()) entries.push_back(&entry);
  std::ranges::stable_sort(entries, {}, [&](const PriceList::Entry* entry) {
    return colours.of(entry->algorithm) == "grey" ? 0 : 1;
  });
  for (const PriceList::Entry* entry : entries) {
    const std::string colour = colours.of(entry->algorithm);
    const std::string style =
        fmt::format("line-{}{}", colour, colour == "grey" ? " thin" : " thick");
    Drawing::Point before;
    for (int i = 0; i <= kPointsOfCurve; ++i) {
      const double bytes = least * std::pow(most / least, static_cast<double>(i) / kPointsOfCurve);
      const Drawing::Point now{x.at(bytes), y.at(entry->profile.seconds(bytes))};
      if (i > 0) drawing.line(before, now, style);
      before = now;
    }
  }
  // Names at the ends of their curves, from the top down, without overlaps.
  std::ranges::stable_sort(entries, std::greater{}, [&](const PriceList::Entry* entry) {
    return entry->profile.seconds(most);
  });
  double free = top + 24;
  double behind = kNameHeight * static_cast<double>(entries.size());
  for (const PriceList::Entry* entry : entries) {
    const double wanted = y.at(entry->profile.seconds(most));
    const double at = std::clamp(wanted, free, std::max(free, bottom + 24 - behind));
    const std::string colour = colours.of(entry->algorithm);
    drawing.text(kCostRight + 8, at + 4, entry->algorithm->name,
                 colour == "grey" ? "tiny quiet" : fmt::format("tiny strong ink-{}", colour));
    free = at + kNameHeight;
    behind -= kNameHeight;
  }
  // Which one is the cheapest.
  const double bar = bottom + 30;
  drawing.text(kCostLeft - 8, bar + 12, "cheapest", "end small quiet");
  for (std::size_t i = 0; i < reigns.size(); ++i) {
    const double from = std::max(reigns[i].from, least);
    const double to = i + 1 < reigns.size() ? reigns[i + 1].from : most;
    if (to <= from) continue;
    const Drawing::Area area{x.at(from), bar, x.at(to) - x.at(from), 17};
    drawing.box(area, fmt::format("soft {}", colours.of(reigns[i].algorithm)), 2);
    drawing.label(area, reigns[i].algorithm->name, "tiny");
  }
  return std::max(bar + 17, free);
}

}  // namespace

std::string draw_costs(Collective collective, std::span<const schedule::Shape> shapes,
                       std::span<const std::size_t> sizes, const schedule::Network& network) {
  const auto [least, most] = std::ranges::minmax(sizes);
  if (least == most || least == 0) {
    fail(ErrorCode::kInvalidArgument,
         "curves of costs need several sizes from 1 byte on, like --size 1Ki..1Gi");
  }
  Drawing drawing(kCostWidth, fmt::format("{} by the cost model", name(collective)),
                  "Curves of the estimated time of each algorithm over the size of the vector");
  drawing.note(fmt::format("{}. Both axes are logarithmic.", describe(network)));
  double top = drawing.notes_end() + 22;
  for (const schedule::Shape& shape : shapes) {
    const schedule::Topology topology = topology_of(shape, network);
    top = draw_chart(drawing, PriceList(collective, shape, topology), describe(shape, topology),
                     top, static_cast<double>(least), static_cast<double>(most)) +
          34;
  }
  return drawing.finish(top - 10);
}

}  // namespace lockstep::cli
