#include "lockstep/comm/schedule/formula.h"

#include <algorithm>
#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/comm/schedule/generators.h"

namespace lockstep::schedule {
namespace {

using S = const Shape&;

// Nothing is sent by a rank that is alone.
bool alone(S s) { return s.ranks == 1; }
int power(S s) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(s.ranks))); }
double others(S s) { return s.ranks - 1; }

int one_round(S s) { return alone(s) ? 0 : 1; }
int log_rounds(S s) { return ceil_log2(s.ranks); }
int ring_rounds(S s) { return s.ranks - 1; }
int chain_rounds(S s) { return alone(s) ? 0 : s.ranks - 2 + chain_segments(s); }
double sent_vectors(S s) { return others(s); }            // (N-1)S
double sent_vectors_twice(S s) { return 2 * others(s); }  // 2(N-1)S
double sent_blocks(S s) { return others(s) / s.ranks; }   // (N-1)S/N

int twice_log_rounds(S s) { return 2 * log_rounds(s); }
int twice_ring_rounds(S s) { return 2 * ring_rounds(s); }

int double_tree_rounds(S s) {
  if (alone(s)) return 0;
  return 2 * (double_binary_tree_height(s.ranks) + double_binary_tree_chunks(s) / 2 - 1);
}

int butterfly_rounds(S s) { return floor_log2(power(s)) + (s.ranks > power(s) ? 2 : 0); }
double butterfly_sent(S s) { return power(s) * floor_log2(power(s)) + 2.0 * (s.ranks - power(s)); }

int hierarchical_rounds(S s) {
  const Machines machines = machines_of(s);
  const int leaders = static_cast<int>(machines.leaders.size());
  const bool halving = std::has_single_bit(static_cast<unsigned>(leaders));
  return 2 * ceil_log2(machines.largest) + 2 * (halving ? floor_log2(leaders) : leaders - 1);
}

int grid_rounds(S s, int extents) {
  int rounds = 0;
  for (int extent : grid_of(s, extents)) rounds += 2 * (extent - 1);
  return rounds;
}

// Every message of a binomial gather or scatter carries a subtree's blocks.
double subtree_blocks(int ranks, int root) {
  if (ranks == 1) return 0;
  const int left = (ranks + 1) / 2;
  const int right = ranks - left;
  if (root < left) return right + subtree_blocks(left, root) + subtree_blocks(right, 0);
  return left + subtree_blocks(left, 0) + subtree_blocks(right, root - left);
}
double sent_subtrees(S s) { return subtree_blocks(s.ranks, s.root) / s.ranks; }

using enum Collective;
constexpr Formula kFormulas[] = {
    {kAllReduce, "naive", "1", "N(N-1)S", one_round, [](S s) { return s.ranks * others(s); }},
    {kAllReduce, "server", "2", "2(N-1)S", [](S s) { return 2 * one_round(s); },
     sent_vectors_twice},
    {kAllReduce, "ring", "2(N-1)", "2(N-1)S", twice_ring_rounds, sent_vectors_twice},
    {kAllReduce, "bidirectional_ring", "2(N-1)", "2(N-1)S", twice_ring_rounds, sent_vectors_twice},
    {kAllReduce, "tree", "2 ceil(log2 N)", "2(N-1)S", twice_log_rounds, sent_vectors_twice},
    {kAllReduce, "double_binary_tree", "2(h + k - 1)", "2(N-1)S", double_tree_rounds,
     sent_vectors_twice},
    {kAllReduce, "halving_doubling_naive", "2 ceil(log2 N)", "2(N-1)S", twice_log_rounds,
     sent_vectors_twice},
    {kAllReduce, "butterfly", "log2 p; 2 more where N > p", "(p log2 p + 2(N-p))S",
     butterfly_rounds, butterfly_sent},
    {kAllReduce, "rabenseifner", "2 ceil(log2 N)", "2(N-1)S", twice_log_rounds, sent_vectors_twice},
    {kAllReduce, "hierarchical",
     "2 ceil(log2 m) + 2 log2 M; 2(M-1) for the latter where M is not a power of two",
     "2(N-1)S, of which 2(M-1)S between nodes", hierarchical_rounds, sent_vectors_twice},
    {kAllReduce, "torus_2d", "2(rows-1) + 2(columns-1)", "2(N-1)S",
     [](S s) { return grid_rounds(s, 2); }, sent_vectors_twice},
    {kAllReduce, "mesh_2d", "2(rows-1) + 2(columns-1)", "2(N-1)S",
     [](S s) { return grid_rounds(s, 2); }, sent_vectors_twice},
    {kAllReduce, "torus_3d", "2(a-1) + 2(b-1) + 2(c-1)", "2(N-1)S",
     [](S s) { return grid_rounds(s, 3); }, sent_vectors_twice},
    {kBroadcast, "flat", "1", "(N-1)S", one_round, sent_vectors},
    {kBroadcast, "binomial", "ceil(log2 N)", "(N-1)S", log_rounds, sent_vectors},
    {kBroadcast, "chain", "N - 2 + k", "(N-1)S", chain_rounds, sent_vectors},
    {kReduce, "flat", "1", "(N-1)S", one_round, sent_vectors},
    {kReduce, "binomial", "ceil(log2 N)", "(N-1)S", log_rounds, sent_vectors},
    {kReduce, "chain", "N - 2 + k", "(N-1)S", chain_rounds, sent_vectors},
    {kGather, "flat", "1", "(N-1)S/N", one_round, sent_blocks},
    {kGather, "binomial", "ceil(log2 N)", "(log2 N)S/2 for powers of two", log_rounds,
     sent_subtrees},
    {kScatter, "flat", "1", "(N-1)S/N", one_round, sent_blocks},
    {kScatter, "binomial", "ceil(log2 N)", "(log2 N)S/2 for powers of two", log_rounds,
     sent_subtrees},
    {kAllGather, "direct", "1", "(N-1)S", one_round, sent_vectors},
    {kAllGather, "ring", "N-1", "(N-1)S", ring_rounds, sent_vectors},
    {kAllGather, "recursive", "ceil(log2 N)", "(N-1)S", log_rounds, sent_vectors},
    {kReduceScatter, "direct", "1", "(N-1)S", one_round, sent_vectors},
    {kReduceScatter, "ring", "N-1", "(N-1)S", ring_rounds, sent_vectors},
    {kReduceScatter, "recursive", "ceil(log2 N)", "(N-1)S", log_rounds, sent_vectors},
    {kReduceScatter, "tree", "1", "(N-1)S", one_round, sent_vectors},
    {kAllToAll, "direct", "1", "(N-1)S", one_round, sent_vectors},
    {kAllToAll, "pairwise", "N-1", "(N-1)S", ring_rounds, sent_vectors},
};

}  // namespace

const Formula& find_formula(Collective collective, std::string_view algorithm) {
  const auto found = std::find_if(
      std::begin(kFormulas), std::end(kFormulas),
      [&](const Formula& f) { return f.collective == collective && f.algorithm == algorithm; });
  if (found == std::end(kFormulas)) {
    fail(ErrorCode::kInvalidArgument, "no closed form is known for {} by {}", name(collective),
         algorithm);
  }
  return *found;
}

}  // namespace lockstep::schedule
