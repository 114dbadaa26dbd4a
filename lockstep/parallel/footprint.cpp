#include "lockstep/parallel/footprint.h"

#include "lockstep/parallel/ddp/ddp.h"
#include "lockstep/parallel/server/parameter_server.h"
#include "lockstep/parallel/strategy/communication_group.h"
#include "lockstep/parallel/strategy/device_update.h"
#include "lockstep/parallel/zero/exchange.h"
#include "lockstep/parallel/zero/zero.h"

namespace lockstep::parallel {
namespace {

ParameterServerJob server_job(const ParallelOptions& options,
                              const optim::OptimizerOptions& optimizer) {
  ParameterServerJob job;
  job.options = options.server;
  job.optimizer = optimizer;
  job.reduction = options.reduction;
  job.compression = options.compression;
  return job;
}

}  // namespace

std::vector<ServedSlice> served_slices(const ParallelOptions& options,
                                       const optim::OptimizerOptions& optimizer,
                                       const nn::MemoryPlan& plan) {
  return served_slices(server_job(options, optimizer), plan);
}

void add_memory(const ParallelOptions& options, const optim::OptimizerOptions& optimizer,
                const WorkerPosition& position, nn::MemoryPlan& plan) {
  // Buffers that sum flat buffers of gradients are in the gradients' tier.
  const bool on_device = plan.tiers.gradients == Tier::kDevice;
  std::vector<Request>& requests = on_device ? plan.outside : plan.host_outside;
  if (options.reduction == Reduction::kTree) {
    requests.push_back(
        {.name = "tree",
         .group = kCommunicationGroup,
         .bytes = TreeSum::bytes(plan.flat.elements(), position.most_micro_batches)});
  }
  const auto group_bytes = [&](plan::Axes axes, bool is_staged, bool has_messages = false) {
    return device_group_bytes(options, position, axes, is_staged, has_messages);
  };
  if (options.tensor > 1 && plan.device != Device{}) {
    plan.outside.push_back({.name = "tensor group",
                            .group = kCommunicationGroup,
                            .bytes = group_bytes(plan::Axis::kTensor, true)});
  }
  if (options.context > 1 && plan.device != Device{}) {
    plan.outside.push_back({.name = "context group",
                            .group = kCommunicationGroup,
                            .bytes = group_bytes(plan::Axis::kContext, true, true)});
  }
  if (options.expert > 1 && plan.device != Device{}) {
    plan.outside.push_back({.name = "expert group",
                            .group = kCommunicationGroup,
                            .bytes = group_bytes(plan::Axis::kExpert, true, true)});
    plan.outside.push_back({.name = "workers with the same experts",
                            .group = kCommunicationGroup,
                            .bytes = group_bytes({plan::Axis::kData, plan::Axis::kContext}, true)});
  }
  if (plan.stages > 1 && plan.device != Device{}) {
    plan.outside.push_back({.name = "pipeline",
                            .group = kCommunicationGroup,
                            .bytes = group_bytes(plan::Axis::kPipeline, false, true)});
  }
  const bool with_servers =
      position.workers > 1 && options.strategy == StrategyKind::kParameterServer;
  if (position.workers > 1 && plan.device != Device{} && !with_servers) {
    plan.outside.push_back({.name = "communicator",
                            .group = kCommunicationGroup,
                            .bytes = communication_group_bytes(options, position, plan)});
  }
  if (DeviceUpdate::serves(plan)) {
    plan.outside.push_back(
        {.name = "update", .group = "workspace", .bytes = DeviceUpdate::bytes(plan)});
  }
  std::vector<Request> more;
  if (with_servers) {
    ParameterServerJob job = server_job(options, optimizer);
    job.most_micro_batches = position.most_micro_batches;
    more = server_memory(job, plan, position);
  } else if (position.workers > 1 && options.zero == 0) {
    more = Ddp::memory(options, position, plan);
  } else if (position.workers > 1) {
    more = exchange_memory(options, position, plan);
  }
  // Servers, and what workers exchange with them, are on the host.
  std::vector<Request>& place =
      with_servers && plan.device != Device{} ? plan.host_outside : requests;
  place.insert(place.end(), more.begin(), more.end());
}

}  // namespace lockstep::parallel
