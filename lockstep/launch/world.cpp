#include "lockstep/launch/world.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/launch/variables.h"

namespace lockstep {
namespace {

// The environment variables by which one launcher gives a rank its place. A convention with a
// `guard` counts only where that variable is set: Slurm sets the others in shells and batch
// scripts, too.
struct Convention {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* node_rank;
  const char* node_count;
  const char* guard;
};

constexpr Convention kConventions[] = {
    {"RANK and WORLD_SIZE", kRankVariable, kWorldSizeVariable, kLocalRankVariable,
     kLocalWorldSizeVariable, kNodeRankVariable, kNodeCountVariable, ""},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "", "OMPI_MCA_orte_num_nodes", ""},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", "", ""},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_NODEID", "SLURM_NNODES",
     "SLURM_STEP_ID"},
};
constexpr const Convention& kSlurm = kConventions[3];

std::optional<int> read_number(const EnvironmentLookup& environment, const char* name) {
  if (*name == '\0') return std::nullopt;
  const auto text = environment(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0) {
    fail(ErrorCode::kInvalidArgument, "the environment variable {} is '{}'; expected a number",
         name, *text);
  }
  return value;
}

void check_place(int index, int count, std::string_view what, std::string_view origin) {
  if (count < 1 || index < 0 || index >= count) {
    fail(ErrorCode::kInvalidArgument, "{} {} of {} (from {}) is out of range; numbers start at 0",
         what, index, count, origin);
  }
}

[[noreturn]] void fail_half_set(std::string_view present, std::string_view absent) {
  fail(ErrorCode::kInvalidArgument,
       "{} is set but {} is not; set both, or start the program with 'lockstep launch'", present,
       absent);
}

// What a launcher may know about nodes.
struct Nodes {
  std::optional<int> local_rank;
  std::optional<int> local_size;
  std::optional<int> rank;
  std::optional<int> count;
};

// Of two variables that say the same, the first that is set.
std::optional<std::string> either(const EnvironmentLookup& environment, const char* first,
                                  const char* second) {
  const auto text = environment(first);
  return text ? text : environment(second);
}

// Slurm starts a step on some of a job's nodes, with as many ranks on each as it has slots.
Nodes read_slurm_nodes(const EnvironmentLookup& environment) {
  Nodes nodes;
  nodes.local_rank = read_number(environment, kSlurm.local_rank);
  nodes.rank = read_number(environment, kSlurm.node_rank);
  nodes.count = read_number(environment, "SLURM_STEP_NUM_NODES");
  if (!nodes.count) nodes.count = read_number(environment, kSlurm.node_count);
  const auto tasks = either(environment, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  if (tasks && nodes.rank) nodes.local_size = slurm_tasks_of_node(*tasks, *nodes.rank);
  return nodes;
}

Nodes read_nodes(const Convention& convention, const EnvironmentLookup& environment,
                 const World& world) {
  if (&convention == &kSlurm) return read_slurm_nodes(environment);
  Nodes nodes;
  nodes.local_rank = read_number(environment, convention.local_rank);
  nodes.local_size = read_number(environment, convention.local_size);
  nodes.rank = read_number(environment, convention.node_rank);
  nodes.count = read_number(environment, convention.node_count);
  // Slurm's own PMI does not describe nodes, but Slurm's variables do.
  const bool by_slurm = environment(kSlurm.guard) &&
                        read_number(environment, kSlurm.rank) == world.rank &&
                        read_number(environment, kSlurm.size) == world.size;
  if (by_slurm && !nodes.local_rank && !nodes.local_size) return read_slurm_nodes(environment);
  return nodes;
}

// Fills in what the launcher left open: ranks are numbered node by node, equally many on each.
void complete(World& world, Nodes nodes) {
  if (!nodes.local_size && nodes.count && *nodes.count > 0) {
    nodes.local_size = (world.size + *nodes.count - 1) / *nodes.count;
  }
  world.local_size = std::max(1, nodes.local_size.value_or(world.size));
  world.local_rank = nodes.local_rank.value_or(world.rank % world.local_size);
  world.node_count = nodes.count.value_or((world.size + world.local_size - 1) / world.local_size);
  world.node_rank =
      nodes.rank.value_or(std::min(world.rank / world.local_size, world.node_count - 1));
  check_place(world.local_rank, world.local_size, "local rank", world.origin);
  check_place(world.node_rank, world.node_count, "node", world.origin);
}

// True when the environment speaks this convention.
bool read_convention(const Convention& convention, const EnvironmentLookup& environment,
                     World& world) {
  if (*convention.guard != '\0' && !environment(convention.guard)) return false;
  const auto rank = read_number(environment, convention.rank);
  const auto size = read_number(environment, convention.size);
  if (!rank && !size) return false;
  if (!size) fail_half_set(convention.rank, convention.size);
  if (!rank) fail_half_set(convention.size, convention.rank);
  world.rank = *rank;
  world.size = *size;
  world.origin = convention.name;
  check_place(world.rank, world.size, "rank", world.origin);
  complete(world, read_nodes(convention, environment, world));
  return true;
}

// The same number for all processes of a job, and rarely the same for two jobs.
struct JobPort {
  std::uint16_t port;
  std::string origin;
};

std::optional<JobPort> job_port(const EnvironmentLookup& environment) {
  constexpr std::uint32_t kFirstPort = 20000;  // below Linux's range for outgoing connections
  constexpr std::uint32_t kPorts = 12000;
  std::string id;
  std::string origin;
  for (const char* name :
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    const auto value = environment(name);
    if (!value) continue;
    id += "/" + *value;
    origin += (origin.empty() ? "" : " and ") + std::string(name);
  }
  if (id.empty() && environment("PMI_FD")) {
    // Hydra names no job; on one node all ranks are children of its proxy.
    id = std::to_string(::getppid());
    origin = "the process that started the ranks";
  }
  if (id.empty()) return std::nullopt;
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return JobPort{static_cast<std::uint16_t>(kFirstPort + hash % kPorts), "derived from " + origin};
}

void find_rendezvous(const WorldOverrides& overrides, const EnvironmentLookup& environment,
                     World& world) {
  world.rendezvous_is_hosted = environment(kHostedVariable) == "1";
  world.generation = read_number(environment, kGenerationVariable).value_or(0);
  world.is_spare = environment(kSpareVariable) == "1";
  world.most_size = read_number(environment, kMostRanksVariable).value_or(0);
  if (overrides.rendezvous) {
    world.rendezvous = *overrides.rendezvous;
    world.rendezvous_origin = "flags";
    return;
  }
  if (const auto text = environment(kRendezvousVariable)) {
    world.rendezvous = parse_host_port(*text);
    world.rendezvous_origin = kRendezvousVariable;
    return;
  }
  const auto host = environment(kMasterAddressVariable);
  const auto port = environment(kMasterPortVariable);
  if (host && port) {
    world.rendezvous = {*host, parse_port(*port, kMasterPortVariable)};
    world.rendezvous_origin = "MASTER_ADDR and MASTER_PORT";
    if (environment("TORCHELASTIC_USE_AGENT_STORE") == "True") {
      // torchrun itself listens on MASTER_PORT.
      ++world.rendezvous.port;
      world.rendezvous_origin += " + 1, since torchrun listens on MASTER_PORT";
    }
    return;
  }
  if (world.size == 1) return;
  if (world.origin == kConventions[0].name || world.origin == "flags") {
    if (host) fail_half_set(kMasterAddressVariable, kMasterPortVariable);
    if (port) fail_half_set(kMasterPortVariable, kMasterAddressVariable);
  }
  const auto derived = port ? JobPort{parse_port(*port, kMasterPortVariable), kMasterPortVariable}
                            : job_port(environment);
  std::string meeting_host = "127.0.0.1";
  std::string host_origin = "all ranks are on one machine";
  if (host) {
    meeting_host = *host;
    host_origin = kMasterAddressVariable;
  } else if (const auto list = either(environment, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
             list && world.node_count > 1) {
    meeting_host = first_slurm_host(*list);
    host_origin = "first host of Slurm's list";
  } else if (world.node_count > 1) {
    fail(ErrorCode::kInvalidArgument,
         "{} ranks on {} nodes need a rendezvous address; set {} to HOST:PORT, where HOST is the "
         "node of rank 0",
         world.size, world.node_count, kRendezvousVariable);
  }
  if (!derived) {
    fail(ErrorCode::kInvalidArgument,
         "{} ranks need a rendezvous address; set {} and {}, set {} to HOST:PORT, or start the "
         "program with 'lockstep launch'",
         world.size, kMasterAddressVariable, kMasterPortVariable, kRendezvousVariable);
  }
  world.rendezvous = {meeting_host, derived->port};
  world.rendezvous_origin = fmt::format("{}; port {}", host_origin, derived->origin);
}

}  // namespace

std::string first_slurm_host(std::string_view node_list) {
  const auto bracket = node_list.find('[');
  const auto comma = node_list.find(',');
  if (bracket == std::string_view::npos || comma < bracket) {
    return std::string(node_list.substr(0, comma));
  }
  const auto close = node_list.find(']', bracket);
  const std::string_view inside = node_list.substr(bracket + 1, close - bracket - 1);
  std::string host(node_list.substr(0, bracket));
  host += inside.substr(0, inside.find_first_of("-,"));
  if (close != std::string_view::npos) {
    const std::string_view rest = node_list.substr(close + 1);
    host += rest.substr(0, rest.find(','));
  }
  return host;
}

std::optional<int> slurm_tasks_of_node(std::string_view tasks, int node) {
  const auto take_number = [&]() -> std::optional<int> {
    int value = 0;
    const auto [end, error] = std::from_chars(tasks.data(), tasks.data() + tasks.size(), value);
    if (error != std::errc() || value < 1) return std::nullopt;
    tasks.remove_prefix(static_cast<std::size_t>(end - tasks.data()));
    return value;
  };
  while (node >= 0) {
    const auto count = take_number();
    if (!count) return std::nullopt;
    int nodes = 1;
    if (tasks.starts_with("(x")) {
      tasks.remove_prefix(2);
      const auto alike = take_number();
      if (!alike || !tasks.starts_with(')')) return std::nullopt;
      tasks.remove_prefix(1);
      nodes = *alike;
    }
    if (node < nodes) return count;
    node -= nodes;
    if (!tasks.starts_with(',')) return std::nullopt;
    tasks.remove_prefix(1);
  }
  return std::nullopt;
}

World find_world(const WorldOverrides& overrides, const EnvironmentLookup& environment) {
  World world;
  if (overrides.rank || overrides.size) {
    if (!overrides.size) fail_half_set("the flag for the rank", "the one for the number of ranks");
    if (!overrides.rank) fail_half_set("the flag for the number of ranks", "the one for the rank");
    world.rank = *overrides.rank;
    world.size = *overrides.size;
    world.origin = "flags";
    check_place(world.rank, world.size, "rank", world.origin);
    complete(world, {});
  } else if (std::ranges::none_of(kConventions, [&](const Convention& convention) {
               return read_convention(convention, environment, world);
             })) {
    world.origin = kNothingSet;
  }
  if (overrides.ranks_meet) find_rendezvous(overrides, environment, world);
  return world;
}

}  // namespace lockstep
