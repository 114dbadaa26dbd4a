#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "lockstep/base/units.h"
#include "lockstep/nn/memory_plan.h"

namespace lockstep::nn {
namespace {

constexpr std::string_view kActivations = "activations ";

bool is_activations(const GroupBytes& group) { return group.group.starts_with(kActivations); }

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

std::string text(const MemoryPlan& plan) {
  std::string lines;
  const auto line = [&](std::string_view what, std::size_t bytes, std::string_view note) {
    fmt::format_to(std::back_inserter(lines), "{:<36}{:>16} bytes  {:>10}{}\n", what, bytes,
                   format_bytes(static_cast<double>(bytes)), note);
  };
  const std::vector<GroupBytes> classes = plan.by_class();
  for (std::size_t i = 0; i < classes.size();) {
    std::size_t end = i + 1;
    while (is_activations(classes[i]) && end < classes.size() && is_activations(classes[end]) &&
           classes[end].bytes == classes[i].bytes) {
      ++end;
    }
    const std::size_t like = end - i;
    if (like == 1) {
      line(classes[i].group, classes[i].bytes, "");
    } else {
      const std::string last = classes[end - 1].group.substr(kActivations.size());
      line(fmt::format("{} .. {}", classes[i].group, last), like * classes[i].bytes,
           fmt::format("  {} x {}", like, format_bytes(static_cast<double>(classes[i].bytes))));
    }
    i = end;
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
