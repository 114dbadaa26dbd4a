#include "lockstep/parallel/gradients/model_norm.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lockstep/parallel/gradients/gradient_chunks.h"
#include "lockstep/tensor/host_view.h"

namespace lockstep::parallel {
namespace {

// Sums of one block, by its number in the whole model.
struct BlockSums {
  std::size_t number = 0;
  bool experts = false;
  std::vector<double> sums;
};

// In the order of the flat buffer, without copies.
std::vector<BlockSums> sums_of_blocks(const nn::Replica& replica, std::span<const double> sums) {
  std::vector<BlockSums> blocks;
  for (std::size_t block = replica.flat().blocks(); block-- > 0;) {
    const std::size_t count = chunk_count(replica.flat().range(block).elements);
    const auto own = sums.first(count);
    sums = sums.subspan(count);
    if (replica.model().is_copy(block)) continue;
    blocks.push_back({.number = replica.model().number(block),
                      .experts = replica.flat().has_experts(block),
                      .sums = {own.begin(), own.end()}});
  }
  return blocks;
}

// Those of all experts in place of those of this rank's.
void add_up_experts(const nn::Replica& replica, std::vector<BlockSums>& blocks) {
  if (replica.flat().expert_group().size == 1) return;
  std::vector<double> numbers;
  for (const BlockSums& block : blocks) {
    if (block.experts) numbers.insert(numbers.end(), block.sums.begin(), block.sums.end());
  }
  replica.expert_axis()->sum(numbers);
  auto next = numbers.begin();
  for (BlockSums& block : blocks) {
    if (!block.experts) continue;
    const auto count = static_cast<std::ptrdiff_t>(block.sums.size());
    std::copy_n(next, count, block.sums.begin());
    next += count;
  }
}

// In the order that the flat buffer of the whole model has.
double norm_of_blocks(std::vector<BlockSums>& blocks) {
  std::ranges::stable_sort(blocks, std::greater(), &BlockSums::number);
  std::vector<double> all;
  for (const BlockSums& block : blocks) {
    all.insert(all.end(), block.sums.begin(), block.sums.end());
  }
  return norm_of_chunks(all);
}

ModelNorm norms_of(std::vector<BlockSums> blocks) {
  ModelNorm norm{.whole = norm_of_blocks(blocks), .blocks = std::vector<double>(blocks.size())};
  for (const BlockSums& block : blocks) norm.blocks.at(block.number) = norm_of_chunks(block.sums);
  return norm;
}

// Of all stages.
std::vector<BlockSums> gathered_sums(nn::PipelineAxis& axis, const std::vector<BlockSums>& mine) {
  std::vector<double> numbers;  // of each block: its number, how many sums it has, and these
  for (const BlockSums& block : mine) {
    numbers.push_back(static_cast<double>(block.number));
    numbers.push_back(static_cast<double>(block.sums.size()));
    numbers.insert(numbers.end(), block.sums.begin(), block.sums.end());
  }
  std::vector<BlockSums> all;
  for (const std::vector<double>& list : axis.gather_lists(numbers)) {
    for (auto at = list.begin(); at != list.end();) {
      const auto number = static_cast<std::size_t>(*at++);
      const auto count = static_cast<std::ptrdiff_t>(*at++);
      all.push_back({.number = number, .sums = {at, at + count}});
      at += count;
    }
  }
  return all;
}

}  // namespace

double replicated_squares(nn::Replica& replica) {
  // As many in flight as the workspace holds.
  const Tensor workspace = replica.sums_of_squares();
  Ops& ops = workspace.device() == Device{} ? replica.host_ops() : replica.ops();
  std::int64_t used = 0;
  double sum = 0;
  const auto add_up = [&] {
    if (used == 0) return;
    ops.synchronize();
    const HostView squares(workspace.slice(0, std::exchange(used, 0)));
    for (const double one : squares.as<double>()) sum += one;
  };
  for (const nn::FlatParameter& parameter : replica.flat().all()) {
    if (!parameter.shard.is_replicated() || replica.model().is_copy(parameter.block)) continue;
    const Tensor gradient = replica.part_of(parameter).states.gradients;
    if (!ops::is_given(gradient)) continue;
    if (used == static_cast<std::int64_t>(workspace.elements())) add_up();
    ops.run(ops::SumOfSquares{.x = gradient, .result = workspace.slice(used++, 1)});
  }
  add_up();
  return sum;
}

ModelNorm norm_of_model(const nn::Replica& replica, std::span<const double> sums,
                        double replicated) {
  std::vector<BlockSums> blocks = sums_of_blocks(replica, sums);
  add_up_experts(replica, blocks);
  nn::PipelineAxis* const pipeline = replica.pipeline_axis();
  if (replica.tensor_group().size == 1) {
    if (pipeline != nullptr) blocks = gathered_sums(*pipeline, blocks);
    return norms_of(std::move(blocks));
  }
  const double own_norm = norm_of_blocks(blocks);
  const double squares = own_norm * own_norm;
  const double counted = replica.tensor_group().rank == 0 ? squares : squares - replicated;
  double all = replica.tensor_axis()->sum(counted);
  if (pipeline != nullptr) {
    const std::vector<double> stages = pipeline->gather(std::span(&all, 1));
    all = 0;
    for (const double stage : stages) all += stage;
  }
  return {.whole = std::sqrt(all), .blocks = {}};
}

}  // namespace lockstep::parallel
