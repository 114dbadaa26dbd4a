#include "lockstep/cli/explain/cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/text_table.h"

namespace lockstep::cli {
namespace {

using schedule::PriceList;
using schedule::Shape;
using schedule::Topology;

constexpr double kLargest = 64.0 * (1u << 30);  // where the search for crossovers ends

std::string price_table(const PriceList& list, std::span<const std::size_t> sizes) {
  TextTable table;
  std::vector<std::string> head{""};
  for (std::size_t size : sizes) head.push_back(format_bytes(static_cast<double>(size)));
  table.row(std::move(head));
  for (const PriceList::Entry& entry : list.entries()) {
    std::vector<std::string> cells{std::string(entry.algorithm->name)};
    for (std::size_t size : sizes) {
      const auto bytes = static_cast<double>(size);
      const bool first = list.at(bytes).front().algorithm == entry.algorithm;
      cells.push_back(format_seconds(entry.profile.seconds(bytes)) + (first ? " *" : ""));
    }
    table.row(std::move(cells));
  }
  return table.text();
}

// One line for each algorithm that does not take the shape.
std::string left_out(const PriceList& list) {
  std::string text;
  for (const PriceList::Refusal& refusal : list.refusals()) {
    text += fmt::format("  without {}: it {}\n", refusal.algorithm->name, refusal.why);
  }
  return text;
}

std::string reigns_of(const PriceList& list) {
  std::string text;
  for (const PriceList::Reign& reign : list.reigns(kLargest)) {
    if (text.empty()) {
      text = reign.algorithm->name;
    } else {
      text += fmt::format(", from {} {}", format_bytes(reign.from), reign.algorithm->name);
    }
  }
  return text;
}

}  // namespace

Topology topology_of(const Shape& shape, const schedule::Network& network) {
  return shape.machines.empty() ? network.with_ranks(shape.ranks)
                                : network.with_machines(shape.machines);
}

std::string describe(const Shape& shape, const Topology& topology) {
  const int last = *std::max_element(topology.machines.begin(), topology.machines.end());
  return fmt::format("{} on {}", counted(static_cast<std::size_t>(shape.ranks), "rank"),
                     counted(static_cast<std::size_t>(last) + 1, "node"));
}

std::string explain_cost(Collective collective, std::span<const Shape> shapes,
                         std::span<const std::size_t> sizes, const schedule::Network& network) {
  std::string text = fmt::format("{} by the cost model: {}\n* is the cheapest of its column\n",
                                 name(collective), describe(network));
  TextTable crossovers;
  for (const Shape& shape : shapes) {
    const Topology topology = topology_of(shape, network);
    const PriceList list(collective, shape, topology);
    text += fmt::format("\n{}\n{}{}", describe(shape, topology), price_table(list, sizes),
                        left_out(list));
    crossovers.row({counted(static_cast<std::size_t>(shape.ranks), "rank"), reigns_of(list)});
  }
  return text + "\nthe cheapest, from small to large vectors\n" + crossovers.text();
}

}  // namespace lockstep::cli
