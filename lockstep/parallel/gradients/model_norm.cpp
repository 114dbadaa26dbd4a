#include "lockstep/parallel/gradients/model_norm.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/nn/replica/state_stream.h"
#include "lockstep/parallel/gradients/gradient_chunks.h"

namespace lockstep::parallel {
namespace {

// Sums of one block, by its number in the whole model.
struct BlockSums {
  std::size_t number = 0;
  std::size_t place = 0;  // in this rank's flat buffer
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
                      .place = block,
                      .experts = replica.flat().has_experts(block),
                      .sums = {own.begin(), own.end()}});
  }
  return blocks;
}

// One sum for each block, without what an earlier rank of the tensor group counts.
void leave_out_replicated(const nn::Replica& replica, std::span<const double> replicated,
                          std::vector<BlockSums>& blocks) {
  const bool counts = replica.tensor_group().rank == 0;
  for (BlockSums& block : blocks) {
    double sum = std::accumulate(block.sums.begin(), block.sums.end(), 0.0);
    if (!counts) sum -= replicated[block.place];
    block.sums = {sum};
  }
}

void add_up_tensor_group(nn::TensorAxis& tensor, std::vector<BlockSums>& blocks) {
  std::vector<double> numbers;
  for (const BlockSums& block : blocks) numbers.push_back(block.sums.front());
  tensor.sum(numbers);
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].sums = {numbers[i]};
}

// Those of all experts in place of those of this rank's.
void add_up_experts(nn::ExpertAxis& experts, std::vector<BlockSums>& blocks) {
  std::vector<double> numbers;
  for (const BlockSums& block : blocks) {
    if (block.experts) numbers.insert(numbers.end(), block.sums.begin(), block.sums.end());
  }
  experts.sum(numbers);
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

std::vector<double> replicated_squares(
    nn::Replica& replica, Ops& ops,
    const std::function<Tensor(std::size_t block, nn::FlatRange range)>& read) {
  const nn::FlatParameters& flat = replica.flat();
  std::vector<nn::FlatRange> chunks;
  std::vector<std::size_t> blocks;  // of each
  for (std::size_t block = 0; block < flat.blocks(); ++block) {
    if (replica.model().is_copy(block)) continue;
    nn::for_parameters_in(
        flat, block, replica.my_range(block),
        [&](const nn::FlatParameter& parameter, std::size_t, nn::FlatRange within) {
          if (!parameter.shard.is_replicated()) return;
          std::ranges::copy(chunks_of(within), std::back_inserter(chunks));
          blocks.resize(chunks.size(), block);
        });
  }
  std::size_t next = 0;  // chunks are read in order
  const std::vector<double> sums = sums_of_chunks(
      ops, [&](nn::FlatRange chunk) { return read(blocks[next++], chunk); }, chunks,
      replica.sums_of_squares());
  std::vector<double> squares(flat.blocks());
  for (std::size_t i = 0; i < sums.size(); ++i) squares[blocks[i]] += sums[i];
  return squares;
}

ModelNorm norm_of_model(const nn::Replica& replica, std::span<const double> sums,
                        std::span<const double> replicated) {
  return norm_of_model(replica,
                       {.tensor = replica.tensor_axis(),
                        .pipeline = replica.pipeline_axis(),
                        .experts = replica.expert_axis()},
                       sums, replicated);
}

ModelNorm norm_of_model(const nn::Replica& replica, const NormAxes& axes,
                        std::span<const double> sums, std::span<const double> replicated) {
  std::vector<BlockSums> blocks = sums_of_blocks(replica, sums);
  const bool is_divided = replica.tensor_group().size > 1;
  if (is_divided) leave_out_replicated(replica, replicated, blocks);
  if (replica.flat().expert_group().size > 1) add_up_experts(*axes.experts, blocks);
  if (is_divided) add_up_tensor_group(*axes.tensor, blocks);
  if (axes.pipeline != nullptr) blocks = gathered_sums(*axes.pipeline, blocks);
  return norms_of(std::move(blocks));
}

}  // namespace lockstep::parallel
