// The settings of parameter servers (keys parallel.*), and the placement of servers.
//
// Workers compute gradients; servers hold the parameters, each some *slices* of the flat buffer
// (parallel/server/slices/slices.h), sum gradients and run the optimizer. Colocated servers are
// threads of the first workers; dedicated servers are the last ranks of the job.
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
  kAsp,  // every worker's gradients are a separate update; no worker waits for others
  kSsp,  // like kAsp, but no worker starts a share too many steps ahead of a running one
};

// When slices are sent.
enum class SliceSchedule : std::uint8_t {
  kFifo,      // after backward, in the order in which it made them; pulled when all are pushed
  kWfbp,      // as soon as backward has finished with them, in that order
  kPriority,  // like kWfbp, but of the ready slices the one that forward needs first is sent first
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
  double credit_mb = 8;  // the most in flight to one server; one slice is always allowed
};

// Declares the keys; `options` must outlive `config` and stay in place.
void bind(Config& config, ServerOptions& options);

// The roles in a job of `ranks` ranks. Throw Error(kInvalidArgument) if there are too few ranks.
int worker_count(const ServerOptions& options, int ranks);
bool is_server(const ServerOptions& options, int rank, int ranks);  // a dedicated one
int rank_of_server(const ServerOptions& options, int server, int ranks);

// The settings that must be the same on all ranks, as text to compare.
std::string describe(const ServerOptions& options);

}  // namespace lockstep::parallel
