#include "lockstep/parallel/strategy/server_options.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

constexpr std::string_view kPlacementNames[] = {"colocated", "dedicated"};
constexpr std::string_view kConsistencyNames[] = {"bsp", "asp", "ssp"};
constexpr std::string_view kScheduleNames[] = {"fifo", "wfbp", "priority"};
constexpr ValueRange<double> kMegabytes{.min = 0.0001, .max = 1048576};

}  // namespace

std::string_view name(ServerPlacement placement) {
  return kPlacementNames[static_cast<std::size_t>(placement)];
}
std::string_view name(Consistency consistency) {
  return kConsistencyNames[static_cast<std::size_t>(consistency)];
}
std::string_view name(SliceSchedule schedule) {
  return kScheduleNames[static_cast<std::size_t>(schedule)];
}

void bind(Config& config, ServerOptions& options) {
  config.bind("parallel.servers", options.servers,
              "Number of parameter servers. Each holds a part of the parameters.",
              {.min = 1, .max = 65536});
  config
      .bind("parallel.server_placement", options.placement, kPlacementNames,
            "Where parameter servers run: colocated (threads of the first workers) or dedicated "
            "(the last ranks of the job are servers and nothing else).")
      .formerly("parallel.server_place",
                renamed_values({{"beside", "colocated"}, {"own", "dedicated"}}));
  config.bind("parallel.server_threads", options.server_threads,
              "Threads that each parameter server uses for the optimizer.",
              {.min = 1, .max = 1024});
  config.bind("parallel.consistency", options.consistency, kConsistencyNames,
              "How far workers may drift apart. bsp: not at all; asp: without a limit; ssp: by "
              "parallel.staleness steps. In asp and ssp every worker makes its own updates, with "
              "optimizer settings scaled to its share of a step.");
  config.bind("parallel.staleness", options.staleness,
              "With ssp, how many steps a worker may be ahead of the slowest worker.", {.min = 0});
  config.bind(
      "parallel.schedule", options.schedule, kScheduleNames,
      "When slices are sent to and from parameter servers. fifo: after backward; wfbp: as soon as "
      "backward has made them; priority: like wfbp, but slices that forward needs first go first.");
  config
      .bind("parallel.slice_mb", options.slice_mb,
            "The largest slice in MB (2^20 bytes, as f32). A slice is also at most 1/256 of the "
            "model.",
            kMegabytes)
      .formerly("parallel.piece_mb");
  config.bind("parallel.credit_mb", options.credit_mb,
              "How many MB (2^20 bytes) of gradients may be in flight to one parameter server. A "
              "more urgent slice cannot overtake what is in flight.",
              kMegabytes);
}

int worker_count(const ServerOptions& options, int ranks) {
  const bool colocated = options.placement == ServerPlacement::kColocated;
  if (colocated && options.servers > ranks) {
    fail(
        ErrorCode::kInvalidArgument,
        "parallel.servers = {} is more than the {} worker(s) that colocated servers run in, one in "
        "each. Lower parallel.servers, or set parallel.server_placement = \"dedicated\"",
        options.servers, ranks);
  }
  if (!colocated && options.servers >= ranks) {
    fail(
        ErrorCode::kInvalidArgument,
        "a job of {} rank(s) is too small for a worker and {} dedicated parameter server(s). Start "
        "{} ranks, or set parallel.server_placement = \"colocated\"",
        ranks, options.servers, options.servers + 1);
  }
  return colocated ? ranks : ranks - options.servers;
}

bool is_server(const ServerOptions& options, int rank, int ranks) {
  return rank >= worker_count(options, ranks);
}

int rank_of_server(const ServerOptions& options, int server, int ranks) {
  const int workers = worker_count(options, ranks);
  return options.placement == ServerPlacement::kColocated ? server : workers + server;
}

std::string describe(const ServerOptions& options) {
  return fmt::format("{} servers {}, {} {}, {}, slices of {:g} MB, credit {:g} MB", options.servers,
                     name(options.placement), name(options.consistency), options.staleness,
                     name(options.schedule), options.slice_mb, options.credit_mb);
}

}  // namespace lockstep::parallel
