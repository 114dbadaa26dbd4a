// The requests of a memory plan while it is made: what the planners of states and activations
// share.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/memory/memory_plan.h"

namespace lockstep::nn {

class PlanRequests {
 public:
  PlanRequests(const Model& model, MemoryPlan& plan)
      : model_(model), plan_(plan), blocks_(static_cast<int>(model.size())) {}

 protected:
  static constexpr std::size_t kAbsent = BlockRequests::kAbsent;

  int forward_of(int block) const { return block; }
  int backward_of(int block) const { return 2 * blocks_ - 1 - block; }
  int optimizer_step() const { return 2 * blocks_; }

  // Nothing needs no request.
  std::size_t add(std::string name, std::string group, std::size_t bytes, int first, int last) {
    if (bytes == 0) return kAbsent;
    plan_.requests.push_back({std::move(name), std::move(group), bytes, first, last});
    return plan_.requests.size() - 1;
  }

  std::vector<Request>& requests_of(Tier tier, bool symmetric) {
    if (tier == Tier::kFile) return plan_.file_requests;
    if (tier == Tier::kHost) return symmetric ? plan_.host_symmetric_requests : plan_.host_requests;
    return symmetric ? plan_.symmetric_requests : plan_.requests;
  }

  BufferPlace add(Tier tier, bool symmetric, Request request) {
    if (request.bytes == 0) return {};
    std::vector<Request>& requests = requests_of(tier, symmetric);
    requests.push_back(std::move(request));
    return {requests.size() - 1, symmetric && tier != Tier::kFile, tier};
  }

  // Staging is memory of its own, aligned for direct transfers.
  void add_file(const char* name, const char* group, std::size_t file, std::size_t staging) {
    const Request whole{.name = name,
                        .group = group,
                        .bytes = file,
                        .first_step = 0,
                        .last_step = optimizer_step()};
    add(Tier::kFile, false, whole);
    if (staging == 0) return;
    plan_.host_outside.push_back(whole);
    plan_.host_outside.back().group = "staging";
    plan_.host_outside.back().bytes = staging;
  }
  void add_file(const char* name, const char* group, io::StagedFile::Layout& file) {
    file.overlaps = plan_.tiers.overlaps;
    add_file(name, group, file.file_bytes(), file.staging_bytes());
  }

  const Model& model_;
  MemoryPlan& plan_;
  int blocks_;
};

}  // namespace lockstep::nn
