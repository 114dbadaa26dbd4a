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

void run_server(const ParameterServerJob& job, Meeting& meeting, SliceWindow& window) {
  try {
    const std::unique_ptr<Ops> ops = job.make_ops(job.options.server_threads);
    Server server(job.options, meeting.map(), *meeting.server(), meeting.connect_server(),
                  job.comm.timeout, job.comm.emulated_link(), *ops, window, job.needs_all_workers);
    server.run();
    window.close(Error(ErrorCode::kAborted, "the parameter server of this rank has ended"));
  } catch (const Error& error) {
    window.close(error);
    throw;
  } catch (const std::exception& error) {
    window.close(Error(ErrorCode::kSystem, error.what()));
    throw;
  }
}

}  // namespace

std::unique_ptr<Strategy> make_parameter_server(const ParameterServerJob& job,
                                                Communicator& world) {
  return std::make_unique<ServerStrategy>(
      job, std::make_unique<Meeting>(job.options, world, job.comm, host_of(job)), run_server);
}

void serve(const ParameterServerJob& job, Communicator& world) {
  Meeting meeting(job.options, world, job.comm, host_of(job));
  SliceWindow window(true);
  run_server(job, meeting, window);
}

std::vector<ServedSlice> served_slices(const ParameterServerJob& job, const nn::MemoryPlan& plan) {
  std::vector<ServedSlice> slices;
  for (const Slice& slice : layout_for(job, plan).slices) {
    slices.push_back({slice.range, slice.server});
  }
  return slices;
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
