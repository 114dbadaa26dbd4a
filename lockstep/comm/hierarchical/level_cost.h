// The cost model of collectives in one level or two, in the terms of comm/schedule/cost.h: a call
// takes its start-up, and then its bytes divided by the bandwidth of what they cross. A start-up is
// that of a whole collective.
//
//   two levels   one after the other: start-ups and bytes of both levels add up
//   one level    NCCL among all ranks: the slower of what goes inside nodes and across
//
// Bytes across are those that a node sends, over the NICs of all of its ranks. G ranks on N nodes
// of P places, a vector of S bytes (for all_gather that of the result):
//
//   bytes across         two levels     a ring of all ranks   every rank to every rank
//   all_reduce           2 (N-1)/N S    2 (G-1)/G S           2 P (N-1)/N S
//   reduce               S              S                     P (N-1)/N S + S/N
//   reduce_scatter       (N-1)/N S      (G-1)/G S             P (N-1)/N S
//   all_gather           (N-1)/N S      (G-1)/G S             P (N-1)/N S
#pragma once

#include <cstddef>

#include "lockstep/comm/call.h"
#include "lockstep/comm/hierarchical/levels.h"
#include "lockstep/comm/node_grid.h"
#include "lockstep/comm/schedule/topology.h"

namespace lockstep::hierarchical {

struct LevelLinks {
  schedule::Link inside;     // of a rank, within its node
  schedule::Link across;     // of a rank in its lane, while all lanes are in use
  double flat_start_up = 0;  // of a collective of all ranks
  bool is_measured = false;

  bool operator==(const LevelLinks&) const = default;
};

// Typical figures: GPUs on NVLink and a NIC of 200 Gbit/s for each.
LevelLinks assumed_level_links();

// Times calls of every level on staging memory of that many bytes. Called by all ranks of `host`;
// all return the same figures: the slowest rank counts. They are rounded to powers of two, so that
// the same job mostly chooses alike.
LevelLinks measured_level_links(Communicator& host, const Levels& levels, const NodeGrid& grid,
                                std::size_t staging_bytes);

struct LevelCall {
  Collective kind = Collective::kAllReduce;
  double bytes = 0;          // of the vector
  std::size_t rounds = 1;    // in two levels
  bool is_exchange = false;  // in one level every rank sends to every rank
};

// Sent by a node to others.
double bytes_across_in_two_levels(const LevelCall& call, const NodeGrid& grid);
double bytes_across_in_one_level(const LevelCall& call, const NodeGrid& grid);

double seconds_in_two_levels(const LevelCall& call, const NodeGrid& grid, const LevelLinks& links);
double seconds_in_one_level(const LevelCall& call, const NodeGrid& grid, const LevelLinks& links);

}  // namespace lockstep::hierarchical
