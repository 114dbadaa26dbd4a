#include "lockstep/parallel/zero/flat_exchange.h"

namespace lockstep::parallel {
namespace {

// What is not one's own part.
std::uint64_t bytes_of_others(int workers, std::size_t elements, DType dtype) {
  const auto n = static_cast<std::uint64_t>(workers);
  return (n - 1) * elements * size_of(dtype) / n;
}

}  // namespace

FlatExchange::FlatExchange(Communicator& world, const ParallelOptions& options)
    : group_(world.split(0, world.rank())),
      whole_blocks_(options.partition == nn::Partition::kLayer),
      tree_(options.reduction == Reduction::kTree) {}

UnitTraffic FlatExchange::traffic(const ParallelOptions& options, int workers,
                                  const nn::MemoryPlan& plan, std::size_t unit) {
  const auto sent = [&](DType dtype) {
    SentBytes bytes{.all = bytes_of_others(workers, plan.flat.range(unit).elements, dtype)};
    if (options.machines > 1) bytes.across.reset();
    return bytes;
  };
  const SentBytes gather = sent(plan.setup.dtype);
  return {.gather = gather, .gather_again = gather, .add_up = sent(plan.setup.gradient)};
}

std::uint64_t FlatExchange::bytes_sent(const Tensor& whole) const {
  return bytes_of_others(group_->size(), whole.elements(), whole.dtype());
}

std::uint64_t FlatExchange::gather(std::size_t unit, const Tensor& mine, const Tensor& whole) {
  if (whole_blocks_) {
    const int owner = shards_.owner(unit);
    if (group_->rank() == owner && mine.data() != whole.data()) copy(whole, mine);
    group_->broadcast(data_of(whole), owner);
  } else {
    group_->all_gather(data_of(mine), data_of(whole));
  }
  return bytes_sent(whole);
}

std::uint64_t FlatExchange::add_up(std::size_t unit, const Tensor& gradients, const Tensor& mine) {
  const int owner = shards_.owner(unit);
  Call call = whole_blocks_
                  ? reduce(data_of(gradients), group_->rank() == owner ? data_of(mine) : Data(),
                           ReduceOp::kSum, owner)
                  : reduce_scatter(data_of(gradients), data_of(mine));
  if (tree_ && group_->size() > 2) call.algorithm = whole_blocks_ ? "binomial" : "tree";
  group_->run(call);
  return bytes_sent(gradients);
}

}  // namespace lockstep::parallel
