// How workers with sharded states gather the parameters of a block and reduce-scatter its
// gradients. A block here is a *unit* (nn/parameters/sharding.h), and every worker holds a *part*
// (shard) of it.
//
// Two ways: collectives over all workers (FlatExchange); or, with several nodes or quantization, in
// two stages, inside nodes and between them (MachineExchange).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/parallel/communication/sent_bytes.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/worker_position.h"

namespace lockstep::parallel {

// Called by all workers in the same order; one thread at a time. Errors are those of a
// Communicator.
class Exchange {
 public:
  virtual ~Exchange() = default;
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Allocates symmetric memory for the replica, in which it works without copies.
  virtual SymmetricBuffer allocate(std::size_t bytes) = 0;
  // The same on the host, beside a GPU.
  virtual SymmetricBuffer allocate_host(std::size_t /*bytes*/) { return {}; }
  // Called once, before anything is exchanged: allocates what exchange_memory() requests.
  virtual void start(const nn::MemoryPlan& plan) = 0;

  // Gathers a unit from the parts of all workers into `whole`. Beside a GPU each of the two may lie
  // on the host, and only `mine` where one of them does.
  virtual void gather(std::size_t unit, const Tensor& mine, const Tensor& whole) = 0;
  // Reduce-scatters the gradients of a unit: `mine` becomes the sum of all workers' gradients of
  // this part. Tiers: as above. The part of `gradients` may hold the sum then, too.
  virtual void add_up(std::size_t unit, const Tensor& gradients, const Tensor& mine) = 0;

  // Parameters have changed: drops kept copies. Not during an exchange.
  virtual void forget() {}
  // Bytes sent by this worker since the start, as counted by Communicator.
  virtual std::uint64_t bytes_sent() const = 0;
  // Of these, to other nodes; 0 if unknown.
  virtual std::uint64_t bytes_across() const = 0;
};

// Called by all workers of `world` together, which must outlive it. Throws Error(kUnsupported) if
// the options do not support the placement of workers on nodes.
std::unique_ptr<Exchange> make_exchange(Communicator& world, const ParallelOptions& options);

// The memory of an exchange, in the groups kCommunicationGroup and kSecondaryGroup.
inline constexpr const char* kSecondaryGroup = "secondary";
std::vector<Request> exchange_memory(const ParallelOptions& options, const WorkerPosition& position,
                                     const nn::MemoryPlan& plan);

// Predicts what is sent for a unit; `calls` of all workers.
struct UnitTraffic {
  SentBytes gather;
  SentBytes gather_again;  // while parameters are unchanged
  SentBytes add_up;
};
UnitTraffic unit_traffic(const ParallelOptions& options, const WorkerPosition& position,
                         const nn::MemoryPlan& plan, std::size_t unit, const PlannedGroups& calls);

inline Data data_of(const Tensor& tensor) {
  return {tensor.data(), tensor.elements(), tensor.dtype()};
}

}  // namespace lockstep::parallel
