#include "lockstep/launch/node_setup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/net/hmac.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/base/system/descriptor_limit.h"
#include "lockstep/base/text/hex.h"
#include "lockstep/launch/variables.h"

namespace lockstep {
namespace {

// The environment variables from which a rank learns its place.
std::map<std::string, std::string> place_variables(const LaunchOptions& options,
                                                   const NodeSetup& setup, int local_rank) {
  std::map<std::string, std::string> variables;
  const auto set = [&](const char* name, const auto& value) {
    variables[name] = fmt::format("{}", value);
  };
  set(kRankVariable, setup.first_rank + local_rank);
  set(kWorldSizeVariable, setup.size);
  set(kLocalRankVariable, local_rank);
  set(kLocalWorldSizeVariable, setup.ranks);
  set(kNodeRankVariable, options.node_rank);
  set(kNodeRankAlias, options.node_rank);
  set(kNodeCountVariable, options.nodes);
  set(kMasterAddressVariable, setup.master.host);
  set(kMasterPortVariable, setup.master.port);
  set(kRendezvousVariable, format_host_port(setup.rendezvous));
  set(kHostedVariable, 1);
  set(kTokenVariable, token_text(setup.token));
  set(kGenerationVariable, setup.generation);
  set(kNodeCpusVariable, options.bind ? CpuSet::of_this_thread().text() : "");
  return variables;
}

void check(const LaunchOptions& options) {
  if (options.ranks_per_node < 1 || options.nodes < 1) {
    fail(ErrorCode::kInvalidArgument, "a job needs at least one node with one rank, not {} with {}",
         options.nodes, options.ranks_per_node);
  }
  if (options.node_rank < 0 || options.node_rank >= options.nodes) {
    fail(ErrorCode::kInvalidArgument, "--node-rank is {}; with --nodes {} it goes from 0 to {}",
         options.node_rank, options.nodes, options.nodes - 1);
  }
  if (options.nodes > 1 && (!options.rendezvous || options.rendezvous->port == 0)) {
    fail(ErrorCode::kInvalidArgument,
         "several nodes need a rendezvous address: pass --rendezvous HOST:PORT, the same on all "
         "nodes, where HOST is node 0 as the others reach it and PORT is free there");
  }
  const auto ours = place_variables(options, NodeSetup{}, 0);
  for (const auto& [name, value] : options.environment) {
    if (!ours.contains(name)) continue;
    fail(ErrorCode::kInvalidArgument,
         "--env {0}=... has no effect: the launcher sets {0} for each rank itself. Leave it out",
         name);
  }
}

// Two pipes from every rank here, and a connection of every rank of the job that is at the
// rendezvous.
std::size_t launcher_descriptors(const LaunchOptions& options) {
  constexpr int kOthers = 64;
  const int visitors = options.node_rank == 0 ? options.nodes * options.ranks_per_node : 0;
  const int processes = options.ranks_per_node + options.elastic.spares;
  return static_cast<std::size_t>(2 * processes + visitors + options.nodes + kOthers);
}

std::unique_ptr<NodeLink> link_nodes(const LaunchOptions& options, const NodeSetup& setup) {
  const std::string facts = encode(facts_of_node(options, setup));
  // The server waits for more nodes when as many have joined as the job needs.
  const bool may_begin_early = options.elastic.least_nodes > 0;
  const auto timeout = options.join_timeout +
                       (may_begin_early ? options.rejoin_timeout : std::chrono::milliseconds(0));
  try {
    return std::make_unique<NodeLink>(setup.rendezvous, setup.token, options.node_rank,
                                      options.nodes, facts, deadline_in(timeout));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kTimeout && error.ranks() == std::vector{options.node_rank}) {
      fail(ErrorCode::kTimeout,
           "another launcher takes part in this job as node {} and has not ended; give every "
           "launcher a --node-rank of its own",
           options.node_rank);
    }
    if (error.code() != ErrorCode::kUnauthorized) throw;
    fail(ErrorCode::kUnauthorized,
         "node {} and node 0 have different tokens: {}. Copy node 0's ~/.config/lockstep/token to "
         "this machine (mode 600), or name a file that both have with {}",
         options.node_rank, error.what(), kTokenFileVariable);
  }
}

std::string random_name() {
  std::array<std::byte, 8> bytes;
  fill_random(bytes);
  return to_hex(bytes);
}

}  // namespace

NodeFacts facts_of_node(const LaunchOptions& options, const NodeSetup& setup, int generation,
                        std::vector<int> kept) {
  return {.ranks = options.ranks_per_node,
          .master_port = setup.master.port,
          .restarts = options.restarts.most,
          .least = options.elastic.least,
          .least_nodes = options.elastic.least_nodes,
          .spares = options.elastic.spares,
          .job = setup.job,
          .generation = generation,
          .kept = std::move(kept)};
}

std::vector<NodeFacts> compare_nodes(const LaunchOptions& options, const NodeLink& link) {
  std::vector<NodeFacts> nodes;
  for (const std::string& blob : link.blobs()) {
    const int node = static_cast<int>(nodes.size());
    if (blob.empty()) {
      nodes.push_back({.ranks = 0});
      continue;
    }
    nodes.push_back(decode_facts(node, blob));
    const NodeFacts& facts = nodes.back();
    if (facts.ranks != options.ranks_per_node) {
      fail(ErrorCode::kMismatch,
           "node {} starts {} ranks and node {} starts {}; give all nodes the same -n", node,
           facts.ranks, options.node_rank, options.ranks_per_node);
    }
    if (facts.restarts != options.restarts.most) {
      fail(ErrorCode::kMismatch,
           "node {} has --max-restarts {} and node {} has {}; give all nodes the same", node,
           facts.restarts, options.node_rank, options.restarts.most);
    }
    const LaunchOptions::Elastic& elastic = options.elastic;
    if (facts.least != elastic.least || facts.least_nodes != elastic.least_nodes ||
        facts.spares != elastic.spares) {
      fail(ErrorCode::kMismatch,
           "node {} and node {} have different --nodes, --ranks or --spares; give all nodes the "
           "same",
           node, options.node_rank);
    }
  }
  return nodes;
}

NodeSetup set_up_node(const LaunchOptions& options) {
  check(options);
  expect_descriptors(launcher_descriptors(options), "the launcher");
  NodeSetup setup;
  setup.ranks = options.ranks_per_node;
  setup.first_rank = options.node_rank * setup.ranks;
  setup.size = options.nodes * setup.ranks;
  setup.token = options.nodes == 1 ? mint_token() : find_token();
  setup.rendezvous = options.rendezvous.value_or(HostPort{kLoopback, 0});
  setup.master.host = setup.rendezvous.host;
  if (options.node_rank == 0) {
    setup.job = random_name();
    RendezvousOptions server;
    server.nodes = options.nodes;
    server.least_ranks = options.is_elastic() ? 1 : 0;
    server.least_nodes = options.elastic.least_nodes;
    server.wait_for_nodes = options.rejoin_timeout;
    const HostPort listen = listen_address(setup.rendezvous, options.nodes > 1);
    setup.server = std::make_unique<RendezvousServer>(
        listen, setup.token, options.nodes * options.ranks_per_node, std::move(server));
    setup.rendezvous.port = setup.server->address().port;
    setup.master.port = static_cast<std::uint16_t>(free_master_port(options, setup));
  }
  if (options.nodes > 1) {
    fmt::print(stderr, "lockstep: node {} of {} waits for the others at {}\n", options.node_rank,
               options.nodes, format_host_port(setup.rendezvous));
    setup.link = link_nodes(options, setup);
    setup.nodes = compare_nodes(options, *setup.link);
  } else {
    setup.nodes = {facts_of_node(options, setup)};
  }
  return setup;
}

int free_master_port(const LaunchOptions& options, const NodeSetup& setup) {
  const std::string host = listen_address(setup.rendezvous, options.nodes > 1).host;
  return listen_tcp({host, 0}).address.port;
}

std::vector<std::string> rank_environment(const LaunchOptions& options, const NodeSetup& setup,
                                          int local_rank) {
  std::map<std::string, std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry(*at);
    const auto equals = entry.find('=');
    if (equals != std::string_view::npos) {
      variables.try_emplace(std::string(entry.substr(0, equals)), entry.substr(equals + 1));
    }
  }
  variables.erase(kTokenFileVariable);
  variables.erase(kSupervisorVariable);  // a launcher's own
  variables.erase(kSpareVariable);
  for (const auto& [name, value] : options.environment) variables[name] = value;
  for (auto& [name, value] : place_variables(options, setup, local_rank)) variables[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

// With the number that follows those of all ranks.
std::vector<std::string> spare_environment(const LaunchOptions& options, const NodeSetup& setup) {
  NodeSetup place;
  place.token = setup.token;
  place.rendezvous = setup.rendezvous;
  place.master = setup.master;
  place.generation = setup.generation;
  place.ranks = options.ranks_per_node + 1;
  place.first_rank = (options.nodes - 1) * options.ranks_per_node;
  place.size = options.nodes * options.ranks_per_node + 1;
  auto entries = rank_environment(options, place, options.ranks_per_node);
  entries.push_back(fmt::format("{}=1", kSpareVariable));
  return entries;
}

}  // namespace lockstep
