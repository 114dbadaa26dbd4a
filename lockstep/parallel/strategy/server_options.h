// How a run uses parameter servers: the keys parallel.* of that strategy, and who is a server.
//
// Workers compute gradients; servers hold the parameters, each some *slices* of the flat buffer
// (parallel/server/slices/slices.h), add gradients up and run the optimizer. Servers are threads
// beside the first workers, or processes of their own: then the last ranks of the job.
//
//   "colocated", 4 ranks, 2 servers   rank 0 worker + server 0, 1 worker + server 1, 2, 3
//   "dedicated", 4 ranks, 2 servers   rank 0, 1 workers; rank 2 server 0, rank 3 server 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/config/config.h"

namespace lockstep::parallel {

enum class ServerPlacement : std::uint8_t { kColocated, kDedicated };

// How far workers may drift apart.
enum class Consistency : std::uint8_t {
  kBsp,  // all gradients of a step make one update; the result is that of one worker
  kAsp,  // every worker's gradients make an update of their own, and nobody waits for others
  kSsp,  // as kAsp, but nobody begins a share that lies too many steps ahead of one under way
};

// When slices travel.
enum class SliceSchedule : std::uint8_t {
  kFifo,      // after backward, in the order in which it made them; back when all have gone
  kWfbp,      // as soon as backward has finished with them, in that order
  kPriority,  // as kWfbp, but of those that are ready the one that forward needs first goes first
};

std::string_view name(ServerPlacement placement);  // "colocated", "dedicated"
std::string_view name(Consistency consistency);    // "bsp", "asp", "ssp"
std::string_view name(SliceSchedule schedule);     // "fifo", "wfbp", "priority"

struct ServerOptions {
  int servers = 1;
  ServerPlacement placement = ServerPlacement::kColocated;
  int server_threads = 1;  // of the optimizer in each server
  Consistency consistency = Consistency::kBsp;
  int staleness = 4;  // steps, in kSsp
  SliceSchedule schedule = SliceSchedule::kPriority;
  double slice_mb = 4;
  double credit_mb = 8;  // on its way to one server, at most; one slice always may be
};

// Declares the keys; `options` must outlive `config` and stay in place.
void bind(Config& config, ServerOptions& options);

// Who is what in a job of so many ranks. The functions throw Error(kInvalidArgument) where there
// are not ranks enough for the servers.
int worker_count(const ServerOptions& options, int ranks);
bool is_server(const ServerOptions& options, int rank, int ranks);  // and nothing else
int rank_of_server(const ServerOptions& options, int server, int ranks);

// What all ranks must have alike, to be compared.
std::string describe(const ServerOptions& options);

}  // namespace lockstep::parallel
