#include "lockstep/comm/schedule/topology.h"

#include <algorithm>

namespace lockstep::schedule {
namespace {

constexpr NamedLink kNamedLinks[] = {
    {"nvlink", "NVLink 4: 450 GB/s in each direction", {2e-6, 450e9}},
    {"pcie", "PCIe 4.0 x16: 32 GB/s in each direction", {3e-6, 32e9}},
    {"rdma", "InfiniBand or RoCE at 200 Gbit/s", {5e-6, 25e9}},
    {"ethernet", "TCP over Ethernet at 25 Gbit/s", {30e-6, 3.125e9}},
};

}  // namespace

int Topology::count_machines() const {
  return machines.empty() ? 0 : 1 + *std::max_element(machines.begin(), machines.end());
}

int Topology::leaf_of(int machine) const {
  return machines_per_leaf > 0 ? machine / machines_per_leaf : 0;
}

double Topology::uplink_bandwidth(int leaf) const {
  const int first = leaf * machines_per_leaf;
  const int here = std::min(machines_per_leaf, count_machines() - first);
  return here * nics_per_machine * outer.bandwidth / oversubscription;
}

Topology flat_topology(int ranks, Link link) { return machines_topology(ranks, 1, link, link); }

Topology machines_topology(int ranks, int ranks_per_machine, Link inner, Link outer) {
  Topology topology;
  topology.inner = inner;
  topology.outer = outer;
  for (int rank = 0; rank < ranks; ++rank) topology.machines.push_back(rank / ranks_per_machine);
  return topology;
}

std::span<const NamedLink> named_links() { return kNamedLinks; }

}  // namespace lockstep::schedule
