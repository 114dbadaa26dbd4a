#include "lockstep/comm/options.h"

#include <fmt/format.h>

#include <charconv>

#include "lockstep/base/config/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kTransportNames[] = {"auto", "shm", "tcp"};
constexpr std::string_view kBackendNames[] = {"native", "threads", "mpi"};
constexpr std::string_view kDeviceBackendNames[] = {"auto", "native", "nccl", "hierarchical"};
constexpr std::string_view kVerifyNames[] = {"off", "sample", "all"};
constexpr std::string_view kEncryptNames[] = {"auto", "off", "on"};

constexpr ValueRange<std::size_t> kWindowRange{.min = std::size_t{4} << 10,
                                               .max = std::size_t{1} << 30};
constexpr std::chrono::milliseconds kShortestTimeout{1};

}  // namespace

std::string_view name(TransportChoice transport) {
  return kTransportNames[static_cast<std::size_t>(transport)];
}

std::string_view name(Backend backend) { return kBackendNames[static_cast<std::size_t>(backend)]; }

std::string_view name(DeviceBackend backend) {
  return kDeviceBackendNames[static_cast<std::size_t>(backend)];
}

std::string default_cache_dir() {
  const EnvironmentLookup environment = process_environment();
  if (const auto cache = environment("XDG_CACHE_HOME")) return *cache + "/lockstep";
  if (const auto home = environment("HOME")) return *home + "/.cache/lockstep";
  return {};
}

std::string_view CommOptions::algorithm(Collective collective) const {
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    if (kScheduledCollectives[i] == collective) return algorithms[i];
  }
  return kAutoAlgorithm;
}

std::vector<int> CommOptions::grid_extents() const {
  std::vector<int> extents;
  if (grid.empty()) return extents;
  for (const std::string_view text : split_text(grid, 'x')) {
    int extent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc() || end != text.data() + text.size() || extent < 1) {
      fail(ErrorCode::kInvalidArgument,
           "comm.grid ({}) is '{}'; write the extents of a grid, the slowest first, like 8x6",
           Config::environment_name("comm.grid"), grid);
    }
    extents.push_back(extent);
  }
  return extents;
}

std::optional<LinkEmulation> CommOptions::emulated_link() const {
  if (emulate.empty()) return std::nullopt;
  try {
    return parse_link_emulation(emulate);
  } catch (const Error& error) {
    fail(error.code(), "comm.emulate ({}): {}", Config::environment_name("comm.emulate"),
         error.what());
  }
}

void bind(Config& config, CommOptions& options) {
  config.bind(
      "comm.timeout", options.timeout,
      "How long a rank waits for others before it fails with the names of the missing ranks.",
      kShortestTimeout);
  config.bind("comm.transport", options.transport, kTransportNames,
              "How ranks exchange bytes; auto: shared memory inside a node and TCP between nodes.");
  config.bind("comm.backend", options.backend, kBackendNames,
              "What moves the data: lockstep between processes (native) or threads, or MPI.");
  config.bind(
      "comm.device_backend", options.device_backend, kDeviceBackendNames,
      "What moves the data of GPUs: lockstep's kernels on one node (native), NCCL, or both: "
      "kernels inside nodes and NCCL across (hierarchical). auto: native on one node; on "
      "several with as many ranks on each, the faster of nccl and hierarchical by measured "
      "latency and bandwidth; else nccl.");
  for (std::size_t i = 0; i < options.algorithms.size(); ++i) {
    const std::string_view collective = name(kScheduledCollectives[i]);
    config.bind(
        fmt::format("comm.algorithm.{}", collective), options.algorithms[i],
        fmt::format("The algorithm of {}; auto: the fastest by measured latency and bandwidth.",
                    collective));
  }
  config.bind("comm.grid", options.grid,
              "The grid of torus and mesh algorithms, the slowest extent first, like 8x6; empty: "
              "the one that sends least between nodes.");
  config.bind("comm.window", options.window,
              "Bytes of a staging slot between two ranks of one node.", kWindowRange);
  config.bind("comm.cache_dir", options.cache_dir,
              "The file that keeps measured links; empty: they are not kept.");
  config.bind("comm.measure", options.measure,
              "Whether to measure the delay and bandwidth of links at start when not yet known.");
  config.bind("comm.recorder_dir", options.recorder_dir,
              "Where the flight recorder's dumps go on an error; empty: to stderr only.");
  config.bind("comm.interface", options.interface,
              "The address at which other nodes reach this rank; empty: loopback, or the address "
              "of the interface that leads to the rendezvous where that is on another node.");
  config.bind(
      "comm.check", options.check,
      "Whether the MPI backend compares fingerprints of every operation; the others always do.");
  config.bind("comm.emulate", options.emulate,
              "Slow links between ranks of one machine, for experiments: the bandwidth of every "
              "rank's NIC and the delay of every message, like 1Gbit,100us; empty: none.");
  config
      .bind("comm.emulated_nodes", options.emulated_nodes,
            "For experiments: splits the ranks of this machine, in order, into this many emulated "
            "nodes. Ranks of one node share memory; comm.emulate is the link between nodes.",
            {.min = 1})
      .formerly("comm.hosts");
  config.bind(
      "comm.verify", options.verify, kVerifyNames,
      "Which collectives between ranks of one node are checked after the fact, by checksums "
      "and by recomputed elements: none, one of 16, or all.");
  config.bind("comm.encrypt", options.encrypt, kEncryptNames,
              "Which TCP connections between ranks are encrypted (AES-256-GCM, keys from the job's "
              "token); auto: those to other machines, unless comm.trusted_network is set.");
  config.bind("comm.trusted_network", options.trusted_network,
              "Whether nobody else can read or change what the network between the machines "
              "carries; comm.encrypt = auto then encrypts nothing.");
}

CommOptions comm_options() {
  CommOptions options;
  Config config;
  bind(config, options);
  if (const auto path = process_environment()("LOCKSTEP_CONFIG")) config.read_file(*path);
  config.read_environment();
  return options;
}

}  // namespace lockstep
