#include <fmt/format.h>

#include <iterator>
#include <string>
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

// What is behind the number of a layer: ".mlp" of "activations layer.3.mlp".
std::string half_of(const std::string& name) {
  const std::size_t number = name.find_last_of("0123456789");
  return number == std::string::npos ? name : name.substr(number + 1);
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
  std::vector<std::string> firsts;  // of the layers in each line; empty: of none
  // Whether the block joins the line that is so many before the end.
  const auto joins = [&](const GroupBytes& group, std::size_t back) {
    if (!is_activations(group) || lines.size() < back) return false;
    const std::string& first = firsts[lines.size() - back];
    return !first.empty() && lines[lines.size() - back].each == group.bytes &&
           first.starts_with(group.group.substr(0, group.group.find(kActivations)));
  };
  for (const GroupBytes& group : plan.by_class()) {
    // Layers that are two blocks each alternate (nn/blocks/divided_layer.h).
    const bool alternates = joins(group, 2) && !firsts.back().empty() &&
                            lines.back().count == lines[lines.size() - 2].count &&
                            half_of(firsts[lines.size() - 2]) == half_of(group.group);
    if (const std::size_t back = joins(group, 1) ? 1 : alternates ? 2 : 0; back > 0) {
      const std::size_t layer = group.group.find(kActivations) + kActivations.size();
      lines[lines.size() - back].name =
          firsts[lines.size() - back] + " .. " + group.group.substr(layer);
      ++lines[lines.size() - back].count;
      continue;
    }
    firsts.push_back(is_activations(group) ? group.group : "");
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
