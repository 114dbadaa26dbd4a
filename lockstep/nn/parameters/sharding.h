// The sharding of a model's states over workers (nn/parameters/flat_parameters.h).
//
// Workers may shard the optimizer states, the gradients and the parameters, in this order of cost.
// Of a sharded flat buffer a worker holds its *part* (shard) of every block's range, in the order
// of the flat buffer:
//
//   buffer    | head        | layer.1     | layer.0     |      tensor: equal parts of each block
//   worker 0  | h0   | l1.0 | l0.0 |
//   worker 1  | h1   | l1.1 | l0.1 |
//
//   worker 0  | layer.1     |                                  layer: whole blocks, as evenly as
//   worker 1  | head        | layer.0     |                    possible
//
// The ranks of an expert group have experts of their own (nn/expert_group.h). So the blocks of
// experts are sharded over the workers that have the same ones: every e-th group of `context`
// consecutive workers.
//
//   8 workers, 2 expert ranks, 2 context ranks      | 0 1 | 2 3 | 4 5 | 6 7 |
//   the first experts                                 0 1         4 5
//   the others                                              2 3         6 7
//
// A *unit* is an unsharded block: its parameters gathered from all workers, or its gradients before
// they are reduced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/nn/parameters/flat_parameters.h"

namespace lockstep::nn {

enum class Partition : std::uint8_t { kTensor, kLayer };
inline constexpr std::string_view kPartitionNames[] = {"tensor", "layer"};

struct Sharding {
  int workers = 1;
  int worker = 0;
  bool optimizer = false;   // is sharded: ZeRO 1
  bool gradients = false;   // 2
  bool parameters = false;  // 3
  Partition partition = Partition::kTensor;
  // Of units of parameters (nn/memory/gather_plan.h).
  int max_unsharded_blocks = 2;
  bool reshard_after_forward = false;
  // Whether gradients are in symmetric memory.
  bool symmetric = false;
  // The ranks of an expert group and of a context group among the workers.
  int experts = 1;
  int context = 1;

  // The expert rank of a worker; of the workers that hold the same parameters of a block, with
  // experts or without, how many there are and which of them a worker is.
  int expert_rank(int of_worker) const { return of_worker / context % experts; }
  int workers_with(bool has_experts) const { return has_experts ? workers / experts : workers; }
  int place_of(bool has_experts, int of_worker) const {
    if (!has_experts) return of_worker;
    return of_worker / (context * experts) * context + of_worker % context;
  }
  int place_of(bool has_experts) const { return place_of(has_experts, worker); }

  bool any() const { return optimizer || gradients || parameters; }
};

class Shards {
 public:
  // Parts begin at multiples of this many elements, in their block and in a flat buffer of parts.
  static constexpr std::size_t kAlignment = 64;
  // The multiple to which a block's range is padded for a sharding.
  static std::size_t block_multiple(const Sharding& sharding);

  Shards() = default;
  // `flat` has ranges of such multiples.
  Shards(const FlatParameters& flat, const Sharding& sharding);

  // The part of a worker, in its whole flat buffer; may be empty.
  FlatRange of(std::size_t block, int worker) const;
  FlatRange mine(std::size_t block) const { return of(block, sharding_.worker); }
  // The same in the flat buffer of this worker's parts.
  FlatRange mine_among_parts(std::size_t block) const;
  // The owner of a block with Partition::kLayer.
  int owner(std::size_t block) const { return owners_.at(block); }

  // The size of a flat buffer of parts, the same on all workers.
  std::size_t elements() const { return elements_; }

 private:
  Sharding sharding_;
  std::vector<FlatRange> ranges_;    // of blocks
  std::vector<bool> has_experts_;    // likewise
  std::vector<std::size_t> firsts_;  // of this worker's parts, among them
  std::vector<int> owners_;
  std::size_t elements_ = 0;
};

}  // namespace lockstep::nn
