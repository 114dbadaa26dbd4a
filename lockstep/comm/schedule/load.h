// What one round of messages puts on every port and link of a topology.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/comm/schedule/topology.h"

namespace lockstep::schedule {

struct CostLine {
  double seconds = 0;
  double seconds_per_byte = 0;  // of the vector
  double at(double bytes) const { return seconds + seconds_per_byte * bytes; }
};

class Load {
 public:
  explicit Load(const Topology& topology);

  void clear();
  void send(int from, int to, double chunks);
  void combine(int rank, double chunks);
  // Every rank sends each other one that many chunks, and combines what comes or does not. Not on
  // a torus.
  void send_among_all(double chunks, bool combines);

  // The lines of which the round's time is the maximum. `chunk_share` of the vector is a chunk.
  std::vector<CostLine> lines(double chunk_share) const;

 private:
  // What a message crosses, as places in the loads below.
  struct Way {
    std::size_t from, to;
    int from_machine, to_machine;
    std::size_t from_nic, to_nic;
    std::size_t from_root, to_root;
    std::size_t from_leaf, to_leaf;
    bool inner;
    bool over_roots;
    bool over_spine;
    double alpha;
  };
  Way way_between(int from, int to) const;
  double seconds_per_chunk(const Way& way) const;
  // Calls visit(link) for the links of a torus on the way from node to node.
  template <class Visit>
  void walk(int from, int to, Visit&& visit) const;
  int hops(int from, int to) const;
  void choose_examples();

  const Topology& topology_;
  // Of every rank: its NIC and its PCIe root among all.
  std::vector<std::size_t> nic_, root_;
  std::vector<int> ranks_of_machine_;
  std::vector<int> ranks_of_leaf_;
  std::vector<double> uplinks_;  // bytes per second, of leaves

  std::vector<double> starting_, accepting_;  // seconds of start-up, by rank
  // Chunks, by rank, NIC, root, leaf, and link of a torus.
  std::vector<double> inner_out_, inner_in_, combined_;
  std::vector<double> outer_out_, outer_in_;
  std::vector<double> root_out_, root_in_;
  std::vector<double> spine_out_, spine_in_;
  std::vector<double> links_;
  std::vector<Way> messages_;   // those that lines() looks at
  std::vector<int> combining_;  // ranks
  bool is_full_ = false;        // messages_ does not hold all messages
};

}  // namespace lockstep::schedule
