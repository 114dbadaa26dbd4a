// Two-stage exchange, inside nodes and between them (parallel/communication/machines.h), so that as
// little as possible crosses between nodes, and less with quantization (parallel/zero/part_wire.h):
// ZeRO++.
//
// Gather, here for worker 1 of 2 nodes with 2 workers, whose lane is 1 3; p are payloads:
//
//   unit          [ part 0 | part 1 | part 2 | part 3 ]
//   encoded                  p1
//   across        [ p1 p3 ]                                all-gather of the lane
//   inside        [ p0 p2 | p1 p3 ]                        all-gather of the node
//   decoded       [ part 0 | part 1 | part 2 | part 3 ]    one's own, too, for all to have the same
//
// The secondary partition (parallel.secondary_partition) keeps what crossed: a node has all
// payloads of every unit, each worker those of its lane. Until parameters change, later gathers of
// the unit start from them, and nothing crosses.
//
// Reduce-scatter. A worker gets its node's sums of the parts of its lane, encodes those of other
// nodes as payloads and sends each to its owner. The owner decodes them and sums in f32, once:
// nothing is quantized twice, and the sum of its own node is not quantized.
//
//   gradients     [ g0 | g1 | g2 | g3 ]
//   inside        [ s1 | s3 ]                              two reduce-scatters of the node
//   across        s3 -> 3 as a payload, that of the other node's s1 comes; exact: as they are
//   sum           [ sum 1 ]
//
// For a unit of S bytes, each of H nodes sends S (H - 1) / H, or the payloads of that.
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
                             const nn::MemoryPlan& plan, std::size_t unit,
                             const PlannedGroups& calls);

  SymmetricBuffer allocate(std::size_t bytes) override { return inside_->allocate(bytes); }
  void start(const nn::MemoryPlan& plan) override;
  void gather(std::size_t unit, const Tensor& mine, const Tensor& whole) override;
  void add_up(std::size_t unit, const Tensor& gradients, const Tensor& mine) override;
  void forget() override { kept_.assign(kept_.size(), false); }
  std::uint64_t bytes_sent() const override;
  std::uint64_t bytes_across() const override;

 private:
  // Whether this worker keeps its lane's payloads of a unit.
  bool has_lane(std::size_t unit) const { return !secondary_firsts_.empty() && kept_[unit]; }
  // The payloads of this worker's lane, in the order of nodes.
  std::span<std::byte> lane_payloads(std::size_t unit, const Tensor& mine);
  std::span<std::byte> staging(std::size_t first, std::size_t bytes) const;

  ParallelOptions options_;
  MachineGrid grid_;
  int worker_;
  std::unique_ptr<Communicator> inside_;  // the workers of this node
  std::unique_ptr<Communicator> across_;  // of this worker's lane; null on one node
  std::unique_ptr<FlatExchange> flat_;    // for sums in the order of the tree; else null
  std::unique_ptr<CodecDevice> codec_device_;
  std::unique_ptr<PartWire> weights_;
  std::unique_ptr<PartWire> gradients_;
  SymmetricBuffer staging_;
  SymmetricBuffer secondary_;
  std::vector<std::size_t> secondary_firsts_;  // offsets of units, in bytes; empty: nothing is kept
  std::vector<bool> kept_;                     // units
};

}  // namespace lockstep::parallel
