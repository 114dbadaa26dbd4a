#include "lockstep/comm/native/hosts.h"

#include <algorithm>
#include <new>

#include "lockstep/base/log.h"
#include "lockstep/base/text/units.h"

namespace lockstep {
namespace {

bool on_one_machine(const std::vector<int>& machines) {
  return std::ranges::all_of(machines, [&](int machine) { return machine == machines.front(); });
}

struct NicLines {
  LinkPace::Line egress;
  LinkPace::Line ingress;
};

}  // namespace

std::vector<int> seen_machines(const Fabric& fabric, const CommOptions& options) {
  std::vector<int> machines = fabric.machines();
  if (options.emulated_nodes == 1 || machines.size() == 1) return machines;
  if (!on_one_machine(machines)) {
    fail(ErrorCode::kUnsupported,
         "comm.emulated_nodes = {} emulates nodes on one machine, but these ranks are on several; "
         "leave it out, or start all ranks on one machine",
         options.emulated_nodes);
  }
  const auto ranks = static_cast<int>(machines.size());
  if (options.emulated_nodes > ranks) {
    fail(ErrorCode::kInvalidArgument,
         "comm.emulated_nodes = {} needs at least one rank for each emulated node, but there are "
         "{} ranks",
         options.emulated_nodes, ranks);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    machines[static_cast<std::size_t>(rank)] = emulated_node(rank, ranks, options.emulated_nodes);
  }
  return machines;
}

std::shared_ptr<transport::EmulatedNic> make_nic(Fabric& fabric, const CommOptions& options,
                                                 std::uint64_t tag) {
  const std::optional<LinkEmulation> link = options.emulated_link();
  const std::vector<int> machines = seen_machines(fabric, options);
  if (!link || machines.size() == 1) return nullptr;
  const bool has_hosts = options.emulated_nodes > 1;
  if (fabric.rank() == 0) {
    log_warn(
        "links are emulated (comm.emulate = \"{}\"): every {} has a NIC of {} and every "
        "message takes {} more; times and choices are those of such links, not of this machine",
        options.emulate, has_hosts ? "emulated node" : "rank",
        format_bytes_per_second(link->bytes_per_second),
        format_seconds(std::chrono::duration<double>(link->delay).count()));
  }
  if (!has_hosts) return std::make_shared<transport::EmulatedNic>(*link);
  const int mine = machines[static_cast<std::size_t>(fabric.rank())];
  std::vector<int> mates;
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    if (machines[rank] == mine) mates.push_back(static_cast<int>(rank));
  }
  const SharedMemory memory =
      fabric.share(tag + static_cast<std::uint64_t>(mine), mates, sizeof(NicLines));
  // Zeroes are lines that are free.
  auto* lines = reinterpret_cast<NicLines*>(memory.get());
  return std::make_shared<transport::EmulatedNic>(*link, lines->egress, lines->ingress, memory);
}

}  // namespace lockstep
