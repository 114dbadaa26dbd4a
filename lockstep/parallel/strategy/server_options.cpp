#include "lockstep/parallel/strategy/server_options.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

constexpr std::string_view kPlaceNames[] = {"beside", "own"};
constexpr std::string_view kConsistencyNames[] = {"bsp", "asp", "ssp"};
constexpr std::string_view kScheduleNames[] = {"fifo", "wfbp", "priority"};
constexpr ValueRange<double> kMegabytes{.min = 0.0001, .max = 1048576};

}  // namespace

std::string_view name(ServerPlace place) { return kPlaceNames[static_cast<std::size_t>(place)]; }
std::string_view name(Consistency consistency) {
  return kConsistencyNames[static_cast<std::size_t>(consistency)];
}
std::string_view name(SliceSchedule schedule) {
  return kScheduleNames[static_cast<std::size_t>(schedule)];
}

void bind(Config& config, ServerOptions& options) {
  config.bind("parallel.servers", options.servers, "Parameter servers that share the parameters.",
              {.min = 1, .max = 65536});
  config.bind("parallel.server_place", options.place, kPlaceNames,
              "Where parameter servers run: beside (threads of the first workers) or own (the last "
              "ranks of the job are servers and nothing else).");
  config.bind("parallel.server_threads", options.server_threads,
              "Threads of the optimizer in each parameter server.", {.min = 1, .max = 1024});
  config.bind(
      "parallel.consistency", options.consistency, kConsistencyNames,
      "How far workers of a parameter server may drift apart. bsp: not at all; asp: as far "
      "as they like; ssp: parallel.staleness steps. In asp and ssp every worker makes updates "
      "of its own, by settings of the optimizer that are scaled to its share of a step.");
  config.bind("parallel.staleness", options.staleness,
              "With ssp, the steps that a worker's next share may lie ahead of the oldest one that "
              "another worker is still at.",
              {.min = 0});
  config.bind("parallel.schedule", options.schedule, kScheduleNames,
              "When slices travel to and from parameter servers. fifo: after backward; wfbp: as "
              "backward makes them; priority: the same, those first that forward needs first.");
  config.bind("parallel.piece_mb", options.piece_mb,
              "Parameters travel in slices of at most so many MB (2^20 bytes, as f32), and of at "
              "most a 256th of the model.",
              kMegabytes);
  config.bind("parallel.credit_mb", options.credit_mb,
              "How many MB (2^20 bytes) of gradients may be on their way to one parameter server: "
              "what cannot be overtaken any more by a slice that is needed earlier.",
              kMegabytes);
}

int worker_count(const ServerOptions& options, int ranks) {
  const bool beside = options.place == ServerPlace::kBeside;
  if (beside && options.servers > ranks) {
    fail(ErrorCode::kInvalidArgument,
         "{} parameter servers cannot run beside {} worker(s), one beside each; lower "
         "parallel.servers, or set parallel.server_place = \"own\"",
         options.servers, ranks);
  }
  if (!beside && options.servers >= ranks) {
    fail(ErrorCode::kInvalidArgument,
         "a job of {} rank(s) has no room for a worker and {} parameter server(s) of their own; "
         "start {} ranks, or set parallel.server_place = \"beside\"",
         ranks, options.servers, options.servers + 1);
  }
  return beside ? ranks : ranks - options.servers;
}

bool is_server(const ServerOptions& options, int rank, int ranks) {
  return rank >= worker_count(options, ranks);
}

int rank_of_server(const ServerOptions& options, int server, int ranks) {
  const int workers = worker_count(options, ranks);
  return options.place == ServerPlace::kBeside ? server : workers + server;
}

std::string describe(const ServerOptions& options) {
  return fmt::format("{} servers {}, {} {}, {}, slices of {:g} MB, credit {:g} MB", options.servers,
                     name(options.place), name(options.consistency), options.staleness,
                     name(options.schedule), options.piece_mb, options.credit_mb);
}

}  // namespace lockstep::parallel
