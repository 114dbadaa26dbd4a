// Collectives over all workers: all-gather and reduce-scatter of parts, or with parallel.partition
// = "layer" a broadcast from the owner and a reduce to it. Units of experts are exchanged by the
// workers that hold the same ones (nn/expert_group.h). The bits are those of parallel/ddp/ddp.h.
//
// Beside a GPU units on the host are exchanged between hosts. Where only this worker's part lies
// there, GPUs exchange the unit in place, and the part is copied before or after.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/parallel/strategy/communication_group.h"
#include "lockstep/parallel/zero/exchange.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::parallel {

class FlatExchange : public Exchange {
 public:
  FlatExchange(Communicator& world, const ParallelOptions& options);

  static UnitTraffic traffic(const ParallelOptions& options, const nn::MemoryPlan& plan,
                             std::size_t unit, const PlannedGroups& calls);

  SymmetricBuffer allocate(std::size_t bytes) override { return group_->allocate(bytes); }
  SymmetricBuffer allocate_host(std::size_t bytes) override;
  void start(const nn::MemoryPlan& plan) override;
  void gather(std::size_t unit, const Tensor& mine, const Tensor& whole) override;
  void add_up(std::size_t unit, const Tensor& gradients, const Tensor& mine) override;
  std::uint64_t bytes_sent() const override;
  std::uint64_t bytes_across() const override;

 private:
  Communicator& group_of(std::size_t unit, const Tensor& whole) const;
  // Of a unit.
  Tensor own_part(std::size_t unit, const Tensor& whole) const;

  Communicator& world_;
  std::unique_ptr<Communicator> group_;       // the same workers, for the communication thread
  std::unique_ptr<Communicator> host_group_;  // the same, where units lie on the host beside a GPU
  std::optional<ExpertDataGroup> expert_data_;  // absent: all workers hold the same
  ParallelOptions options_;
  nn::Shards shards_;
  std::vector<bool> has_experts_;    // of every unit
  std::vector<std::size_t> firsts_;  // likewise: where it begins in the flat buffer
  std::optional<Stream> bus_;        // of copies between a GPU and the host
};

}  // namespace lockstep::parallel
