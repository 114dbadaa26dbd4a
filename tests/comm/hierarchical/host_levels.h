// Hierarchical communicators over host memory, whose levels are communicators of the host.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/comm/hierarchical/communicator.h"
#include "lockstep/comm/native/threads.h"

namespace lockstep::testing {

struct HostLevelOptions {
  std::size_t staging_bytes = std::size_t{4} << 10;  // so that most calls go in pieces
  bool tree_order = false;
  bool forced = true;
  bool measure = false;
};

inline hierarchical::Levels split_levels(Communicator& host, const NodeGrid& grid,
                                         std::size_t staging_bytes) {
  hierarchical::Levels levels;
  levels.inside = host.split(grid.node_of(host.rank()), host.rank());
  levels.staging = levels.inside->allocate(staging_bytes);
  levels.across = host.split(grid.place_of(host.rank()), host.rank());
  levels.flat = host.split(0, host.rank());
  return levels;
}

// Of ranks that are a grid of several nodes and places; of others a communicator of the host.
inline std::unique_ptr<Communicator> host_levels(std::unique_ptr<Communicator> host,
                                                 const HostLevelOptions& options = {}) {
  const std::optional<NodeGrid> grid = node_grid(host->machines());
  if (!grid || grid->nodes == 1 || grid->places == 1) return host;
  hierarchical::Levels levels = split_levels(*host, *grid, options.staging_bytes);
  return std::make_unique<hierarchical::HierarchicalCommunicator>(
      std::move(host), std::move(levels),
      hierarchical::HierarchicalOptions{.two_levels = {.grid = *grid,
                                                       .staging_bytes = options.staging_bytes,
                                                       .tree_order = options.tree_order},
                                        .forced = options.forced,
                                        .measure = options.measure,
                                        .is_exchange = nullptr,
                                        .make_part = [options](std::unique_ptr<Communicator> part) {
                                          return host_levels(std::move(part), options);
                                        }});
}

// Runs the body on threads that are dealt out to emulated nodes, as evenly as possible.
inline void on_emulated_nodes(int ranks, int nodes, const std::function<void(Communicator&)>& body,
                              std::chrono::nanoseconds timeout = std::chrono::minutes(1)) {
  CommOptions options;
  options.timeout = timeout;
  options.emulated_nodes = nodes;
  options.measure = false;
  options.cache_dir.clear();
  run_threads(ranks, body, options);
}

}  // namespace lockstep::testing
