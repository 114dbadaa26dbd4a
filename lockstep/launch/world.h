// The rank of this process, the number of ranks, and the rendezvous of the job.
//
// Found in this order; the first that says anything decides:
//   1. what the caller overrides (flags)
//   2. RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE   lockstep launch, torchrun
//   3. OMPI_COMM_WORLD_RANK, ..._SIZE, ..._LOCAL_RANK   Open MPI
//   4. PMI_RANK, PMI_SIZE, MPI_LOCALRANKID              MPICH, Intel MPI and others with PMI
//   5. SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID        Slurm
//   6. nothing: a world of one rank
// A rank without a size, or the reverse, is Error(kInvalidArgument) that names the variable.
//
// The meeting place (rendezvous) is LOCKSTEP_RENDEZVOUS, else MASTER_ADDR:MASTER_PORT, else the
// first host of Slurm's list, else the loopback when all ranks are on this machine; without a port
// from the above, one is derived from the job's id, so that all ranks arrive at the same.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/config/environment.h"
#include "lockstep/base/net/host_port.h"

namespace lockstep {

// World::origin if nothing is set.
inline constexpr char kNothingSet[] = "nothing set";

struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this node
  int local_size = 1;
  int node_rank = 0;  // the number of this node
  int node_count = 1;
  HostPort rendezvous;  // empty host: there is none, and none is needed for a world of one
  // True when the launcher serves the rendezvous; otherwise rank 0 has to.
  bool rendezvous_is_hosted = false;
  int generation = 0;  // of the job's ranks (launch/launcher.h)
  // It stands by for ranks that are lost: it gets its place when it joins a generation.
  bool is_spare = false;
  int most_size = 0;  // of an elastic job: the most ranks that it has; 0: it is not elastic
  // The source: "flags", "RANK and WORLD_SIZE", "Open MPI", ...
  std::string origin = "the caller";
  std::string rendezvous_origin;  // "LOCKSTEP_RENDEZVOUS", "MASTER_ADDR and MASTER_PORT", ...
};

struct WorldOverrides {
  std::optional<int> rank;
  std::optional<int> size;
  std::optional<HostPort> rendezvous;
  // False: MPI connects the ranks, and no rendezvous is needed.
  bool ranks_meet = true;
};

World find_world(const WorldOverrides& overrides = {},
                 const EnvironmentLookup& environment = process_environment());

// The first host of a list as Slurm writes it: "node[07-09,12],gpu1" gives "node07".
std::string first_slurm_host(std::string_view node_list);

// How many ranks are on a node, by a list as Slurm writes it: "4(x2),1" has 1 on node 2. Nothing
// where the list does not say.
std::optional<int> slurm_tasks_of_node(std::string_view tasks, int node);

}  // namespace lockstep
