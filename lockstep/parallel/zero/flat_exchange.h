// Collectives over all workers: all-gather and reduce-scatter of parts, or with parallel.partition
// = "layer" a broadcast from the owner and a reduce to it. Units of experts are exchanged by the
// workers that hold the same ones (nn/expert_group.h). The bits are those of parallel/ddp/ddp.h.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/parallel/zero/exchange.h"

namespace lockstep::parallel {

class FlatExchange : public Exchange {
 public:
  FlatExchange(Communicator& world, const ParallelOptions& options);

  static UnitTraffic traffic(const ParallelOptions& options, const nn::MemoryPlan& plan,
                             std::size_t unit, const PlannedGroups& calls);

  SymmetricBuffer allocate(std::size_t bytes) override { return group_->allocate(bytes); }
  void start(const nn::MemoryPlan& plan) override;
  void gather(std::size_t unit, const Tensor& mine, const Tensor& whole) override;
  void add_up(std::size_t unit, const Tensor& gradients, const Tensor& mine) override;
  std::uint64_t bytes_sent() const override;
  std::uint64_t bytes_across() const override;

 private:
  Communicator& group_of(std::size_t unit) const {
    return has_experts_[unit] ? *expert_data_ : *group_;
  }

  std::unique_ptr<Communicator> group_;        // the same workers, for the communication thread
  std::unique_ptr<Communicator> expert_data_;  // nullptr: all workers hold the same
  ParallelOptions options_;
  nn::Shards shards_;
  std::vector<bool> has_experts_;  // of every unit
};

}  // namespace lockstep::parallel
