#include "lockstep/parallel/server/parameter_server.h"

#include <fmt/format.h>

#include "lockstep/parallel/server/server_strategy.h"
#include "lockstep/parallel/server/service/server.h"
#include "lockstep/parallel/server/wire/meeting.h"
#include "lockstep/parallel/server/wire/slice_codec.h"

namespace lockstep::parallel {
namespace {

std::string host_of(const ParameterServerJob& job) {
  if (!job.host.empty()) return job.host;
  return job.comm.interface.empty() ? "127.0.0.1" : job.comm.interface;
}

void run_server(const ParameterServerJob& job, Meeting& meeting) {
  const std::unique_ptr<Ops> ops = job.make_ops(job.options.server_threads);
  Server server(job.options, meeting.map(), *meeting.server(), meeting.connect_server(),
                job.comm.timeout, job.comm.emulated_link(), *ops);
  server.run();
}

}  // namespace

std::unique_ptr<Strategy> make_parameter_server(const ParameterServerJob& job,
                                                Communicator& world) {
  return std::make_unique<ServerStrategy>(
      job, std::make_unique<Meeting>(job.options, world, job.comm, host_of(job)), run_server);
}

void serve(const ParameterServerJob& job, Communicator& world) {
  Meeting meeting(job.options, world, job.comm, host_of(job));
  run_server(job, meeting);
}

std::vector<Request> server_memory(const ParameterServerJob& job, const nn::MemoryPlan& plan,
                                   const WorkerPosition& position) {
  std::vector<Request> requests;
  if (HostMirror::serves(plan)) {
    requests.push_back(
        {.name = "mirror", .group = kCommunicationGroup, .bytes = HostMirror::bytes(plan)});
  }
  if (job.compression.compression != Compression::kNone) {
    requests.push_back({.name = "compression",
                        .group = kCommunicationGroup,
                        .bytes = SliceCodec::bytes(layout_for(job, plan))});
  }
  const bool has_server =
      job.options.placement == ServerPlacement::kColocated && position.worker < job.options.servers;
  if (has_server) {
    requests.push_back({.name = fmt::format("parameter server {}", position.worker),
                        .group = kCommunicationGroup,
                        .bytes = server_bytes(layout_for(job, plan), job.options, position.worker,
                                              position.workers)});
  }
  return requests;
}

}  // namespace lockstep::parallel
