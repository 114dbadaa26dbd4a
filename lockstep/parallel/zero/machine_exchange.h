// Inside machines and across them (parallel/communication/machines.h), so that what crosses is as
// little as can be, and with integers on the way (parallel/zero/part_wire.h) less still: ZeRO++.
//
// Gather. Here for worker 1 of 2 machines with 2 workers, whose lane is 1 3; p are payloads:
//
//   unit          [ part 0 | part 1 | part 2 | part 3 ]
//   encoded                  p1
//   across        [ p1 p3 ]                                all-gather of the lane
//   inside        [ p0 p2 | p1 p3 ]                        all-gather of the machine
//   decoded       [ part 0 | part 1 | part 2 | part 3 ]    one's own, too, for all to have the same
//
// The secondary partition (parallel.secondary_partition) keeps what came across: of every unit a
// machine has all payloads, each worker those of its lane. Until parameters change, gathers of that
// unit begin there, and nothing crosses.
//
// Add up. The machine's sums of a lane's parts come to its worker, who writes those of other
// machines' workers as payloads and sends each to its holder. Whoever holds a part decodes what
// came and adds up in f32, once: nothing is quantised twice, and one's own machine's sum not at
// all.
//
//   gradients     [ g0 | g1 | g2 | g3 ]
//   inside        [ s1 | s3 ]                              two reduce-scatters of the machine
//   across        s3 -> 3 as a payload, that of the other machine's s1 comes; exact: as they are
//   sum           [ sum 1 ]
//
// Per unit of S bytes a machine of H sends S (H - 1) / H, or the payloads of that.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/parallel/communication/machines.h"
#include "lockstep/parallel/zero/flat_exchange.h"
#include "lockstep/parallel/zero/part_wire.h"

namespace lockstep::parallel {

class MachineExchange : public Exchange {
 public:
  MachineExchange(Communicator& world, const ParallelOptions& options, const MachineGrid& grid);

  static std::vector<Request> memory(const ParallelOptions& options, const MachineGrid& grid,
                                     const nn::MemoryPlan& plan);
  static UnitTraffic traffic(const ParallelOptions& options, const MachineGrid& grid,
                             const nn::MemoryPlan& plan, std::size_t unit, PlannedCalls& calls);

  SymmetricBuffer allocate(std::size_t bytes) override { return inside_->allocate(bytes); }
  void start(const nn::MemoryPlan& plan) override;
  void gather(std::size_t unit, const Tensor& mine, const Tensor& whole) override;
  void add_up(std::size_t unit, const Tensor& gradients, const Tensor& mine) override;
  void forget() override { kept_.assign(kept_.size(), false); }
  std::uint64_t bytes_sent() const override;
  std::uint64_t bytes_across() const override;

 private:
  // Whether this worker's machine has what its lane's payloads of a unit are.
  bool has_lane(std::size_t unit) const { return !secondary_firsts_.empty() && kept_[unit]; }
  // The payloads of this worker's lane, in the order of machines.
  std::span<std::byte> lane_payloads(std::size_t unit, const Tensor& mine);
  std::span<std::byte> staging(std::size_t first, std::size_t bytes) const;

  ParallelOptions options_;
  MachineGrid grid_;
  int worker_;
  std::unique_ptr<Communicator> inside_;  // the workers of this machine
  std::unique_ptr<Communicator> across_;  // of this worker's lane; null where there is one machine
  std::unique_ptr<FlatExchange> flat_;    // for sums in the order of the tree; else null
  std::unique_ptr<PartWire> weights_;
  std::unique_ptr<PartWire> gradients_;
  SymmetricBuffer staging_;
  SymmetricBuffer secondary_;
  std::vector<std::size_t> secondary_firsts_;  // of units, in bytes; empty: nothing is kept
  std::vector<bool> kept_;                     // units
};

}  // namespace lockstep::parallel
