// The environment variables that a launcher sets for a rank.
#pragma once

namespace lockstep {

// As torchrun has them.
inline constexpr const char* kRankVariable = "RANK";
inline constexpr const char* kWorldSizeVariable = "WORLD_SIZE";
inline constexpr const char* kLocalRankVariable = "LOCAL_RANK";
inline constexpr const char* kLocalWorldSizeVariable = "LOCAL_WORLD_SIZE";
inline constexpr const char* kNodeRankVariable = "GROUP_RANK";
inline constexpr const char* kNodeRankAlias = "NODE_RANK";
inline constexpr const char* kNodeCountVariable = "GROUP_WORLD_SIZE";
inline constexpr const char* kMasterAddressVariable = "MASTER_ADDR";
inline constexpr const char* kMasterPortVariable = "MASTER_PORT";

// Our own. MASTER_ADDR:MASTER_PORT is left to programs that serve there themselves.
inline constexpr const char* kRendezvousVariable = "LOCKSTEP_RENDEZVOUS";     // HOST:PORT
inline constexpr const char* kHostedVariable = "LOCKSTEP_RENDEZVOUS_HOSTED";  // 1: by the launcher
inline constexpr const char* kConfigVariable = "LOCKSTEP_CONFIG";             // a file
// The generation that a rank joins: 0 at first, one more after each restart.
inline constexpr const char* kGenerationVariable = "LOCKSTEP_GENERATION";
// 1: a spare, which has no place in the job until it joins a generation (World::is_spare).
inline constexpr const char* kSpareVariable = "LOCKSTEP_SPARE";
// The most ranks of an elastic job (World::most_size).
inline constexpr const char* kMostRanksVariable = "LOCKSTEP_MOST_RANKS";
// The descriptor of a SupervisorLink (launch/rank_link.h).
inline constexpr const char* kSupervisorVariable = "LOCKSTEP_SUPERVISOR";
// The terminal on which the launcher shows what rank 0 rewrites; not set where there is none.
inline constexpr const char* kTerminalVariable = "LOCKSTEP_TERMINAL";

// The CPUs that the ranks of this node divide; empty where they are not to be bound.
inline constexpr const char* kNodeCpusVariable = "LOCKSTEP_NODE_CPUS";

// 1: the launcher serves the live page of the run.
inline constexpr const char* kLiveVariable = "LOCKSTEP_PAGE_IS_SERVED";

// Where ranks of one node meet and listen.
inline constexpr const char* kLoopback = "127.0.0.1";

}  // namespace lockstep
