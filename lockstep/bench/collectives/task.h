// The tasks of a bench: timed calls of one collective, and their replies.
//
// The size S of a collective is the one nccl-tests use, in bytes per rank, N ranks:
//
//   op              S is                         bus bandwidth = S / time x
//   all_reduce      the vector, in place         2 (N-1)/N
//   all_gather      the whole output             (N-1)/N
//   reduce_scatter  the whole input              (N-1)/N
//   all_to_all      the input (= the output)     (N-1)/N
//   broadcast       the vector, in place         1
//
// Algorithm bandwidth is S / time. Bus bandwidth is what a link would have to carry if every rank
// had one: it can be compared across N. Ops that cut S into N blocks round it to whole elements
// per block, at least one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/call.h"

namespace lockstep::bench {

inline constexpr Collective kBenchOps[] = {Collective::kAllReduce, Collective::kAllGather,
                                           Collective::kReduceScatter, Collective::kBroadcast,
                                           Collective::kAllToAll};

struct Task {
  Collective op = Collective::kAllReduce;
  DType dtype = DType::kF32;
  std::size_t bytes = 0;  // S, of whole blocks
  int root = 0;
  std::string flavour;    // which of a worker's variants, e.g. "lockstep-private", "gloo-ring"
  std::string algorithm;  // forced; empty: the implementation decides
  int warmup = 0;         // calls before the timed ones, checked like them
  int iterations = 1;
};

// The same work up to the number of calls: what a worker prepared for one serves the other.
bool same_work(const Task& a, const Task& b);

// How many elements a rank gives and gets, in blocks of which length.
struct Extent {
  std::size_t in = 0;
  std::size_t out = 0;
  std::size_t block = 0;  // == in where the op has no blocks
};
Extent extent(const Task& task, int ranks);

// all_reduce and broadcast work in place, all others from `in` to `out`.
bool in_place(Collective op);

// S as asked for, rounded to whole elements and blocks.
std::size_t whole_bytes(Collective op, DType dtype, int ranks, std::size_t bytes);

double bus_factor(Collective op, int ranks);

// The reply of one rank to a task.
struct Reply {
  std::vector<double> seconds;  // of each timed call
  double wall_seconds = 0;      // of the whole task, with filling and checking
  std::string wrong;            // the first wrong element, in words; empty: all were right
  std::string unsupported;      // why the implementation cannot do this at all; nothing was run
  std::string error;            // what stopped it; the worker ends after this
  std::string algorithm;        // the chosen algorithm and why, if the implementation reports it
  std::string why;
};

// One line of JSON each.
std::string to_line(const Task& task);
std::string to_line(const Reply& reply);
Task task_from_line(const std::string& line);
Reply reply_from_line(const std::string& line);

}  // namespace lockstep::bench
