// The total bytes of a plan.
#include <algorithm>
#include <string_view>

#include "lockstep/nn/memory/memory_plan.h"

namespace lockstep::nn {
namespace {

constexpr const char* kWorkspaceClass = "workspace";
constexpr const char* kGradientsClass = "gradients";

// What lies in one tier: one or two layouts, and what others take.
struct TierParts {
  const std::vector<Request>& requests;
  const Layout& layout;
  const std::vector<Request>& symmetric_requests;
  const Layout& symmetric_layout;
  const std::vector<Request>& outside;
};

TierParts parts_of(const MemoryPlan& plan, Tier tier) {
  static const std::vector<Request> kNone;
  static const Layout kEmpty;
  if (tier == Tier::kFile) return {plan.file_requests, plan.file_layout, kNone, kEmpty, kNone};
  if (tier == Tier::kHost) {
    return {plan.host_requests, plan.host_layout, plan.host_symmetric_requests,
            plan.host_symmetric_layout, plan.host_outside};
  }
  return {plan.requests, plan.layout, plan.symmetric_requests, plan.symmetric_layout, plan.outside};
}

}  // namespace

std::int64_t MemoryPlan::scaled_tensors() const {
  std::int64_t tensors = 0;
  for (const BlockSpec& spec : specs) tensors += static_cast<std::int64_t>(spec.scaled.size());
  return tensors;
}

std::size_t MemoryPlan::bytes(Tier tier) const {
  const TierParts parts = parts_of(*this, tier);
  std::size_t all = parts.layout.bytes + parts.symmetric_layout.bytes;
  for (const Request& request : parts.outside) all += padded_bytes(request);
  return all;
}

std::vector<GroupBytes> MemoryPlan::by_class(Tier tier) const {
  const TierParts parts = parts_of(*this, tier);
  std::vector<GroupBytes> classes = bytes_by_group(parts.requests, parts.layout.peak_step);
  const auto add = [&](const GroupBytes& more) {
    const auto same = std::ranges::find(classes, more.group, &GroupBytes::group);
    if (same != classes.end()) {
      same->bytes += more.bytes;
    } else {
      classes.push_back(more);
    }
  };
  for (const GroupBytes& group :
       bytes_by_group(parts.symmetric_requests, parts.symmetric_layout.peak_step)) {
    add(group);
  }
  for (const Request& request : parts.outside) add({request.group, padded_bytes(request)});
  if (tier == Tier::kDevice) add({kWorkspaceClass, 0});
  // States come first, wherever they lie.
  constexpr std::string_view kFirst[] = {"parameters", "gathered", kGradientsClass, "in flight"};
  std::ranges::stable_sort(classes, {}, [&](const GroupBytes& each) {
    return std::ranges::find(kFirst, each.group) - std::begin(kFirst);
  });
  classes.push_back({"gaps", parts.layout.bytes - parts.layout.lower_bound +
                                 parts.symmetric_layout.bytes -
                                 parts.symmetric_layout.lower_bound});
  return classes;
}

std::vector<GroupBytes> MemoryPlan::by_class() const {
  std::vector<GroupBytes> classes = by_class(Tier::kDevice);
  for (GroupBytes& group : by_class(Tier::kHost)) {
    if (group.bytes == 0) continue;
    classes.push_back({std::string(name(Tier::kHost)) + " " + group.group, group.bytes});
  }
  return classes;
}

}  // namespace lockstep::nn
