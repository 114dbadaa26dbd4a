#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "lockstep/base/text/units.h"
#include "lockstep/nn/memory/memory_plan.h"

namespace lockstep::nn {
namespace {

constexpr std::string_view kActivations = "activations ";

// Of the device or another tier.
bool is_activations(const GroupBytes& group) {
  return group.group.find(kActivations) != std::string::npos;
}

// "12.6 GFLOP"
std::string format_flops(double flops) {
  constexpr std::string_view kPrefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t prefix = 0;
  while (flops >= 1000 && prefix + 1 < std::size(kPrefixes)) {
    flops /= 1000;
    ++prefix;
  }
  return fmt::format("{:.4g} {}FLOP", flops, kPrefixes[prefix]);
}

}  // namespace

std::vector<ClassLine> class_lines(const MemoryPlan& plan) {
  std::vector<ClassLine> lines;
  std::string first;  // of the layers in the last line
  for (const GroupBytes& group : plan.by_class()) {
    const bool joins = is_activations(group) && !lines.empty() && !first.empty() &&
                       lines.back().each == group.bytes &&
                       first.starts_with(group.group.substr(0, group.group.find(kActivations)));
    if (joins) {
      const std::size_t layer = group.group.find(kActivations) + kActivations.size();
      lines.back().name = first + " .. " + group.group.substr(layer);
      ++lines.back().count;
      continue;
    }
    first = is_activations(group) ? group.group : "";
    lines.push_back({.name = group.group, .count = 1, .each = group.bytes});
  }
  return lines;
}

std::string text(const MemoryPlan& plan) {
  std::string lines;
  const auto line = [&](std::string_view what, std::size_t bytes, std::string_view note) {
    fmt::format_to(std::back_inserter(lines), "{:<36}{:>16} bytes  {:>10}{}\n", what, bytes,
                   format_bytes(static_cast<double>(bytes)), note);
  };
  for (const ClassLine& one : class_lines(plan)) {
    line(one.name, one.bytes(),
         one.count == 1
             ? ""
             : fmt::format("  {} x {}", one.count, format_bytes(static_cast<double>(one.each))));
  }
  line("all", plan.bytes(), "");
  fmt::format_to(std::back_inserter(lines),
                 "forward {}, backward {}, recomputed {} a micro-batch of {} x {} tokens\n",
                 format_flops(plan.flops.forward), format_flops(plan.flops.backward),
                 format_flops(plan.flops.recompute), plan.setup.shape.batch,
                 plan.setup.shape.sequence);
  return lines;
}

}  // namespace lockstep::nn
