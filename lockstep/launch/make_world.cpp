#include "lockstep/launch/make_world.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <numeric>

#include "lockstep/base/log.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/base/system/descriptor_limit.h"
#include "lockstep/comm/mpi/mpi.h"
#include "lockstep/comm/native/group_communicator.h"
#include "lockstep/comm/native/native_fabric.h"
#include "lockstep/comm/native/selection.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/comm/rendezvous/rendezvous.h"
#include "lockstep/launch/variables.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kWorldTag = 1;

// The name by which other nodes know this one; the loopback where this node does not know better
// itself (as Debian sets it up).
std::string node_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return resolves_to_loopback(name.data()) ? kLoopback : name.data();
}

// What a rank may have open at a time: a control connection to every other rank; memory of every
// other rank on its way, or over TCP two connections for each of two communicators.
std::size_t rank_descriptors(const World& world, const CommOptions& options) {
  constexpr std::size_t kOthers = 64;
  const std::size_t each = options.transport == TransportChoice::kTcp ? 5 : 3;
  return each * static_cast<std::size_t>(world.size - 1) + kOthers;
}

// A process may make worlds one after another; their exchanges must not meet. Each generation
// counts its own: some of its ranks are new processes.
std::string prefix_of_exchanges(int generation) {
  static std::mutex mutex;
  static std::map<int, int> worlds;
  const std::lock_guard lock(mutex);
  return fmt::format("generation {} world {} ", generation, worlds[generation]++);
}

std::unique_ptr<Communicator> make_native_world(const World& world, const CommOptions& options,
                                                const std::stop_token& stop) {
  const std::string prefix = prefix_of_exchanges(world.generation);
  NativeWorld native;
  native.rank = world.rank;
  native.size = world.size;
  std::unique_ptr<RendezvousServer> server;
  if (world.size > 1) {
    expect_descriptors(rank_descriptors(world, options),
                       fmt::format("rank {} of {}", world.rank, world.size));
    native.token = find_token();
    if (world.rank == 0 && !world.rendezvous_is_hosted) {
      server = std::make_unique<RendezvousServer>(world.rendezvous, native.token, world.size);
    }
    native.listen_host = reachable_host(world, options);
  }
  native.exchange = [&](std::string_view key, const std::string& mine) {
    if (world.size == 1) return std::vector<std::string>{mine};
    return exchange(world.rendezvous, native.token, prefix + std::string(key), world.rank,
                    world.size, mine, deadline_in(options.timeout), stop);
  };
  native.stop = stop;
  auto fabric = make_native_fabric(native, options);
  std::vector<int> members(static_cast<std::size_t>(world.size));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<GroupCommunicator>(
      std::move(fabric), kWorldTag, std::move(members), options,
      [&](const std::string& mine) { return native.exchange("invitations", mine); });
}

[[noreturn]] void fail_mpi_decides(std::string_view key, std::string_view value) {
  fail(ErrorCode::kUnsupported,
       "{} = \"{}\" is not supported with comm.backend = \"mpi\": MPI chooses its algorithms and "
       "transports itself; leave it out, or use comm.backend = \"native\"",
       key, value);
}

std::unique_ptr<Communicator> make_mpi_world(const World& world, const CommOptions& options) {
  for (const Collective collective : kScheduledCollectives) {
    const std::string_view algorithm = options.algorithm(collective);
    if (algorithm == kAutoAlgorithm) continue;
    fail_mpi_decides(fmt::format("comm.algorithm.{}", name(collective)), algorithm);
  }
  if (options.transport != TransportChoice::kAuto) {
    fail_mpi_decides("comm.transport", name(options.transport));
  }
  if (!options.grid.empty()) fail_mpi_decides("comm.grid", options.grid);
  auto mpi = make_mpi_communicator(
      {.deadline = options.timeout, .check = options.check, .recorder_dir = options.recorder_dir});
  // Started otherwise than by mpirun, every process is to MPI a world of its own.
  const bool alike = world.rank == mpi->rank() && world.size == mpi->size();
  if (!alike && world.origin != kNothingSet) {
    fail(ErrorCode::kInvalidArgument,
         "the launcher says that this process is rank {} of {} (from {}), but MPI says that it is "
         "rank {} of {}; with comm.backend = \"mpi\" start the program by mpirun alone (mpirun -n "
         "{} PROGRAM), or use comm.backend = \"native\"",
         world.rank, world.size, world.origin, mpi->rank(), mpi->size(),
         std::max(world.size, mpi->size()));
  }
  return mpi;
}

}  // namespace

std::string reachable_host(const World& world, const CommOptions& options) {
  if (!options.interface.empty()) return options.interface;
  if (world.size == 1) return kLoopback;
  if (world.rendezvous.host.empty()) return world.node_count > 1 ? node_name() : kLoopback;
  return is_loopback(world.rendezvous.host) ? kLoopback : local_host_towards(world.rendezvous);
}

std::unique_ptr<Communicator> make_world(const World& world, const CommOptions& options,
                                         const std::stop_token& stop) {
  check_algorithms(options);
  check_emulation(options);
  check_grid(options, world.size);
  if (world.size > 1) set_log_rank(world.rank);
  switch (options.backend) {
    case Backend::kNative:
      break;
    case Backend::kMpi:
      return make_mpi_world(world, options);
    case Backend::kThreads:
      if (world.size > 1) {
        fail(ErrorCode::kInvalidArgument,
             "comm.backend = \"threads\" is for ranks of one process (run_threads), but this "
             "process is rank {} of {}",
             world.rank, world.size);
      }
      return std::move(make_thread_world(1, options).front());
  }
  return make_native_world(world, options, stop);
}

std::unique_ptr<Communicator> make_world(const CommOptions& options) {
  return make_world(find_world({.ranks_meet = options.backend != Backend::kMpi}), options);
}

}  // namespace lockstep
