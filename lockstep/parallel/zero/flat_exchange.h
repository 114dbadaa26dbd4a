// Collectives over all workers: all-gather and reduce-scatter of parts, or with parallel.partition
// = "layer" a broadcast from the owner and a reduce to it. The bits are those of
// parallel/ddp/ddp.h.
#pragma once

#include <memory>

#include "lockstep/parallel/zero/exchange.h"

namespace lockstep::parallel {

class FlatExchange : public Exchange {
 public:
  FlatExchange(Communicator& world, const ParallelOptions& options);

  static UnitTraffic traffic(const ParallelOptions& options, int workers,
                             const nn::MemoryPlan& plan, std::size_t unit, PlannedCalls& calls);

  SymmetricBuffer allocate(std::size_t bytes) override { return group_->allocate(bytes); }
  void start(const nn::MemoryPlan& plan) override { shards_ = plan.shards; }
  void gather(std::size_t unit, const Tensor& mine, const Tensor& whole) override;
  void add_up(std::size_t unit, const Tensor& gradients, const Tensor& mine) override;
  std::uint64_t bytes_sent() const override { return group_->bytes_sent(); }
  std::uint64_t bytes_across() const override { return group_->bytes_across().value_or(0); }

 private:
  std::unique_ptr<Communicator> group_;  // the same workers, for the communication thread
  ParallelOptions options_;
  nn::Shards shards_;
};

}  // namespace lockstep::parallel
