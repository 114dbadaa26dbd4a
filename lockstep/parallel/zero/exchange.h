// How workers that shard states bring a block's parameters together and add up its gradients.
// A block here is a *unit* (nn/parameters/sharding.h), and everybody holds a *part* of it.
//
// Two ways. All workers at once, as collectives do it (FlatExchange); or where workers are on
// several machines, and where what is sent is quantised, inside machines and across them
// (MachineExchange).
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

// Called by all workers alike, in the same order; one thread at a time. Errors are those of a
// Communicator.
class Exchange {
 public:
  virtual ~Exchange() = default;
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Memory in which it works without copies; the replica's own.
  virtual SymmetricBuffer allocate(std::size_t bytes) = 0;
  // Once, before anything is exchanged: takes what memory_of() has requested.
  virtual void start(const nn::MemoryPlan& plan) = 0;

  // `whole` becomes the unit, of everybody's parts.
  virtual void gather(std::size_t unit, const Tensor& mine, const Tensor& whole) = 0;
  // Everybody's part becomes the sum of all workers' gradients there.
  virtual void add_up(std::size_t unit, const Tensor& gradients, const Tensor& mine) = 0;

  // Parameters have changed: what was kept of them is of no further use. Not while it works.
  virtual void forget() {}
  // By this worker since the beginning, as Communicator counts them.
  virtual std::uint64_t bytes_sent() const = 0;
  // Of these, to other machines; 0 where that is not known.
  virtual std::uint64_t bytes_across() const = 0;
};

// Called by all workers of `world` at the same time, which outlives it. Error(kUnsupported) where
// workers are not spread over machines as the options need it.
std::unique_ptr<Exchange> make_exchange(Communicator& world, const ParallelOptions& options);

// What an exchange takes of a worker's memory: the group kCommunicationGroup, and kSecondaryGroup.
inline constexpr const char* kSecondaryGroup = "secondary";
std::vector<Request> exchange_memory(const ParallelOptions& options, const WorkerPosition& position,
                                     const nn::MemoryPlan& plan);

// What is sent for a unit, before there are any workers; `calls` of all of them.
struct UnitTraffic {
  SentBytes gather;
  SentBytes gather_again;  // while parameters are what they were
  SentBytes add_up;
};
UnitTraffic unit_traffic(const ParallelOptions& options, const WorkerPosition& position,
                         const nn::MemoryPlan& plan, std::size_t unit, PlannedCalls& calls);

inline Data data_of(const Tensor& tensor) {
  return {tensor.data(), tensor.elements(), tensor.dtype()};
}

}  // namespace lockstep::parallel
