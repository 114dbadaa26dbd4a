#include "lockstep/parallel/zero/flat_exchange.h"

#include "lockstep/tensor/copy_on.h"

namespace lockstep::parallel {
namespace {

// The call of all workers for a unit; with whole blocks `owner` holds it.
Call gather_call(bool whole_blocks, int owner, Data mine, Data whole) {
  return whole_blocks ? broadcast(whole, owner) : all_gather(mine, whole);
}

Call add_up_call(const ParallelOptions& options, Device device, int workers, int owner,
                 Data gradients, Data mine) {
  const bool whole_blocks = options.partition == nn::Partition::kLayer;
  Call call = whole_blocks ? reduce(gradients, mine, ReduceOp::kSum, owner)
                           : reduce_scatter(gradients, mine);
  // GPUs sum in the order of the tree.
  const bool tree = options.reduction == Reduction::kTree && device == Device{};
  if (tree && workers > 2) call.algorithm = whole_blocks ? "binomial" : "tree";
  return call;
}

}  // namespace

FlatExchange::FlatExchange(Communicator& world, const ParallelOptions& options)
    : world_(world), group_(communication_group(world, options)), options_(options) {
  if (options.expert > 1) expert_data_.emplace(world, options);
}

void FlatExchange::start(const nn::MemoryPlan& plan) {
  shards_ = plan.shards;
  for (std::size_t unit = 0; unit < plan.flat.blocks(); ++unit) {
    has_experts_.push_back(plan.flat.has_experts(unit));
    firsts_.push_back(plan.flat.range(unit).first);
  }
  if (plan.device != Device{} && plan.tiers.any()) bus_.emplace(plan.device);
}

SymmetricBuffer FlatExchange::allocate_host(std::size_t bytes) {
  if (host_group_ == nullptr) host_group_ = host_group(world_);
  return host_group_->allocate(bytes);
}

Communicator& FlatExchange::group_of(std::size_t unit, const Tensor& whole) const {
  if (has_experts_[unit]) return expert_data_->of(whole.device());
  return whole.device() == group_->device() ? *group_ : *host_group_;
}

Tensor FlatExchange::own_part(std::size_t unit, const Tensor& whole) const {
  const nn::FlatRange mine = shards_.mine(unit);
  if (mine.elements == 0) return whole.slice(0, 0);
  return whole.slice(static_cast<std::int64_t>(mine.first - firsts_[unit]),
                     static_cast<std::int64_t>(mine.elements));
}

std::uint64_t FlatExchange::bytes_sent() const {
  std::uint64_t bytes = group_->bytes_sent();
  if (host_group_ != nullptr) bytes += host_group_->bytes_sent();
  return bytes + (expert_data_ ? expert_data_->bytes_sent() : 0);
}

std::uint64_t FlatExchange::bytes_across() const {
  const std::uint64_t of_experts = expert_data_ ? expert_data_->bytes_across() : 0;
  const std::uint64_t of_hosts =
      host_group_ == nullptr ? 0 : host_group_->bytes_across().value_or(0);
  return group_->bytes_across().value_or(0) + of_hosts + of_experts;
}

UnitTraffic FlatExchange::traffic(const ParallelOptions& options, const nn::MemoryPlan& plan,
                                  std::size_t unit, const PlannedGroups& calls) {
  const bool experts = plan.flat.has_experts(unit);
  const int workers = plan.sharding.workers_with(experts);
  const std::size_t elements = plan.flat.range(unit).elements;
  const bool whole_blocks = options.partition == nn::Partition::kLayer;
  const std::size_t part = whole_blocks ? elements : elements / static_cast<std::size_t>(workers);
  const int owner = plan.shards.owner(unit);
  const auto data = [](std::size_t count, DType dtype) { return Data(nullptr, count, dtype); };
  const SentBytes gather = calls.sent(gather_call(whole_blocks, owner, data(part, plan.setup.dtype),
                                                  data(elements, plan.setup.dtype)),
                                      experts);
  const SentBytes add_up =
      calls.sent(add_up_call(options, options.device, workers, owner,
                             data(elements, plan.setup.gradient), data(part, plan.setup.gradient)),
                 experts);
  return {.gather = gather, .gather_again = gather, .add_up = add_up};
}

void FlatExchange::gather(std::size_t unit, const Tensor& mine, const Tensor& whole) {
  const int owner = shards_.owner(unit);
  const bool whole_blocks = options_.partition == nn::Partition::kLayer;
  Communicator& group = group_of(unit, whole);
  const bool comes = mine.device() != whole.device();
  const Tensor part = comes ? own_part(unit, whole) : mine;
  if (comes && part.elements() > 0) copy_on(bus_, part, mine);
  if (whole_blocks && group.rank() == owner && part.data() != whole.data()) copy(whole, part);
  group.run(gather_call(whole_blocks, owner, data_of(part), data_of(whole)));
}

void FlatExchange::add_up(std::size_t unit, const Tensor& gradients, const Tensor& mine) {
  const int owner = shards_.owner(unit);
  Communicator& group = group_of(unit, gradients);
  const bool gets = options_.partition != nn::Partition::kLayer || group.rank() == owner;
  const bool leaves = mine.device() != gradients.device();
  const Tensor part = leaves ? own_part(unit, gradients) : mine;
  group.run(add_up_call(options_, gradients.device(), group.size(), owner, data_of(gradients),
                        gets ? data_of(part) : Data()));
  if (leaves && gets && part.elements() > 0) copy_on(bus_, mine, part);
}

}  // namespace lockstep::parallel
