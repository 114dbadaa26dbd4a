#include "lockstep/parallel/zero/zero.h"

#include <cmath>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/parallel/agreement.h"
#include "lockstep/parallel/local_update.h"

namespace lockstep::parallel {
namespace {

Data data_of(const Tensor& tensor) { return {tensor.data(), tensor.elements(), tensor.dtype()}; }

TraceLabel label(TraceLane lane, std::string_view kind, std::size_t block, std::size_t elements) {
  return {.lane = lane,
          .kind = kind,
          .of = "block",
          .index = static_cast<std::int64_t>(block),
          .elements = elements};
}

}  // namespace

Zero::Zero(Communicator& world, const ParallelOptions& options, std::int64_t most_micro_batches)
    : world_(world),
      options_(options),
      most_micro_batches_(most_micro_batches),
      group_(world.split(0, world.rank())) {}

nn::Sharding Zero::sharding(const ParallelOptions& options, const Crew& crew) {
  // The tree adds up a worker's own micro-batches first.
  const bool holds = crew.most_micro_batches > 1 &&
                     (options.hold_gradients || options.reduction == Reduction::kTree);
  return {.workers = crew.workers,
          .worker = crew.worker,
          .optimizer = options.zero >= 1,
          .gradients = options.zero >= 2 && !holds,
          .parameters = options.zero >= 3,
          .partition = options.partition,
          .most_gathered = options.most_gathered,
          .seen = true};
}

std::span<std::byte> Zero::seen_memory(std::size_t bytes) {
  memory_ = group_->allocate(bytes);
  return {memory_.data(), memory_.bytes()};
}

void Zero::start(nn::Replica& replica) {
  replica_ = &replica;
  const nn::FlatParameters& flat = replica.flat();
  norm_ = ShardedNorm(flat, replica.plan().shards, workers(), worker());
  if (options_.reduction == Reduction::kTree) tree_ = TreeSum(flat.elements(), most_micro_batches_);
  gathers_.assign(replica.plan().gathers.size(), 0);
  added_up_.assign(flat.blocks(), 0);
  first_writers_.resize(flat.blocks());
  for (std::size_t block = 0; block < flat.blocks(); ++block) {
    first_writers_[block] = block;
    for (std::size_t p = 0; p < replica.plan().specs[block].parameters.size(); ++p) {
      const nn::FlatParameter* place = flat.place(block, p);
      if (place != nullptr) first_writers_[place->block] = block;
    }
  }
  replica.round_parameters();
  for (std::size_t block = 0; block < flat.blocks(); ++block) gather_parameters(block);
  thread_.wait();
  world_.barrier();
}

std::optional<Share> Zero::next(const StepPlan& plan, std::int64_t steps, std::int64_t last_step) {
  if (steps >= last_step) return std::nullopt;
  return share_of(plan, steps + 1, worker(), workers());
}

StepStart Zero::begin_step(const StepStart& mine) {
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "agree", .of = "to begin"});
  exposed_seconds_ = 0;
  thread_.take_cost();  // of what was gathered between steps
  return agree_to_begin(world_, mine);
}

void Zero::begin_micro_batch(std::int64_t index, std::int64_t count) {
  const nn::Sharding& sharding = replica_->plan().sharding;
  const bool tree = options_.reduction == Reduction::kTree;
  if (!sharding.gradients) {
    if (tree && index > 0) tree_.keep(replica_->states().gradients.as<float>(), index - 1);
    if (tree || index == 0) replica_->zero_gradients();
  }
  micro_batch_ = index;
  micro_batches_ = count;
  // Where parameters are gathered too, all must do both in the same order.
  const std::int64_t last = sharding.parameters ? most_micro_batches_ : count;
  adds_up_ = sharding.gradients || index + 1 == last;
}

std::size_t Zero::backward_step(std::size_t block) const {
  return 2 * replica_->model().size() - 1 - block;
}

Zero::Ticket Zero::push(CommunicationThread::Task task) {
  thread_.push(std::move(task));
  return ++pushed_;
}

void Zero::wait_for(Ticket ticket, const TraceLabel& of) {
  const std::size_t later = pushed_ - ticket;
  if (thread_.under_way() <= later) {
    thread_.wait(later);  // throws what a task threw
    return;
  }
  const auto begin = SteadyClock::now();
  const TraceScope scope(trace(), of);
  thread_.wait(later);
  exposed_seconds_ += seconds_since(begin);
}

// What the steps before it wrote and read is done with, so memory whose lifetime begins here is
// free: gathers that the plan has for now can be brought there, and gradients of this backward.
void Zero::enter(std::size_t step) {
  const nn::MemoryPlan& plan = replica_->plan();
  if (!plan.sharding.parameters && !plan.sharding.gradients) return;
  replica_->ops().synchronize();
  const auto at = static_cast<int>(step);
  for (std::size_t i = 0; i < plan.gathers.size(); ++i) {
    if (plan.gathers[i].starts == at) gathers_[i] = push([this, i] { return run_gather(i); });
  }
  for (std::size_t i = 0; i < plan.gathers.size(); ++i) {
    const nn::Gather& gather = plan.gathers[i];
    if (gather.needed != at) continue;
    wait_for(gathers_[i], label(TraceLane::kWaiting, "wait for", gather.unit,
                                plan.flat.range(gather.unit).elements));
  }
}

void Zero::before_forward(std::size_t block) { enter(block); }

void Zero::before_backward(std::size_t block) {
  enter(backward_step(block));
  if (!replica_->plan().sharding.gradients) return;
  // Gradients of the block before the last one had their memory until now; those of an earlier
  // micro-batch have theirs no longer.
  const std::size_t blocks = added_up_.size();
  const bool begins = block + 1 == blocks;
  if (begins || block + 2 < blocks) {
    const std::size_t done = begins ? 0 : block + 2;
    wait_for(begins ? last_added_up_ : added_up_[done],
             label(TraceLane::kWaiting, "wait for", done, replica_->flat().range(done).elements));
  }
  for (std::size_t unit = 0; unit < first_writers_.size(); ++unit) {
    if (first_writers_[unit] == block) clear_gradients(unit);
  }
}

// Begins with what this worker holds of earlier micro-batches, which comes back added up.
void Zero::clear_gradients(std::size_t block) {
  const Tensor gradients = replica_->gradients_of(block);
  if (!ops::is_given(gradients)) return;
  fill_zero(gradients);
  if (micro_batch_ == 0) return;
  const nn::FlatRange mine = replica_->my_range(block);
  if (mine.elements == 0) return;
  copy(gradients.slice(static_cast<std::int64_t>(mine.first - replica_->flat().range(block).first),
                       static_cast<std::int64_t>(mine.elements)),
       replica_->mine(block).gradients);
}

void Zero::after_backward(std::size_t block) {
  const bool has_to = replica_->plan().sharding.gradients || replica_->plan().sharding.parameters;
  if (adds_up_ && (options_.overlap || has_to)) add_up(block);
  if (adds_up_ && !options_.overlap) thread_.wait();
}

void Zero::add_up(std::size_t block) {
  if (replica_->flat().range(block).elements == 0) return;
  replica_->ops().synchronize();
  if (options_.reduction == Reduction::kTree && !replica_->plan().sharding.gradients) {
    const TraceScope scope(trace(), label(TraceLane::kCompute, "add up", block,
                                          replica_->flat().range(block).elements));
    tree_.finish(replica_->gradients_of(block).as<float>(), replica_->flat().range(block).first,
                 micro_batches_ - 1);
  }
  added_up_[block] = last_added_up_ = push([this, block] { return run_add_up(block); });
}

std::uint64_t Zero::part_bytes(std::size_t block, DType dtype) const {
  const auto n = static_cast<std::uint64_t>(workers());
  return (n - 1) * replica_->flat().range(block).elements * size_of(dtype) / n;
}

std::uint64_t Zero::run_add_up(std::size_t block) {
  const Tensor gradients = replica_->gradients_of(block);
  TraceScope scope(trace(),
                   label(TraceLane::kCommunication, "reduce", block, gradients.elements()));
  const Tensor mine = replica_->mine(block).gradients;
  const bool whole_blocks = options_.partition == nn::Partition::kLayer;
  const int owner = replica_->plan().shards.owner(block);
  Call call = whole_blocks ? reduce(data_of(gradients), worker() == owner ? data_of(mine) : Data(),
                                    ReduceOp::kSum, owner)
                           : reduce_scatter(data_of(gradients), data_of(mine));
  if (options_.reduction == Reduction::kTree && workers() > 2) {
    call.algorithm = whole_blocks ? "binomial" : "tree";
  }
  group_->run(call);
  return scope.sent(part_bytes(block, gradients.dtype()));
}

std::uint64_t Zero::run_gather(std::size_t gather) {
  const std::size_t block = replica_->plan().gathers[gather].unit;
  const Tensor whole = replica_->gathered(gather);
  TraceScope scope(trace(), label(TraceLane::kCommunication, "gather", block, whole.elements()));
  const Tensor mine = replica_->mine(block).parameters;
  if (options_.partition == nn::Partition::kLayer) {
    const int owner = replica_->plan().shards.owner(block);
    if (worker() == owner) copy(whole, mine);
    group_->broadcast(data_of(whole), owner);
  } else {
    group_->all_gather(data_of(mine), data_of(whole));
  }
  return scope.sent(part_bytes(block, whole.dtype()));
}

// Stages 1 and 2.
void Zero::gather_parameters(std::size_t block) {
  const bool is_whole = !replica_->plan().sharding.parameters;
  if (!is_whole || replica_->flat().range(block).elements == 0) return;
  push([this, block] { return run_gather_parameters(block); });
}

std::uint64_t Zero::run_gather_parameters(std::size_t block) {
  const Tensor whole = replica_->states().parameters.slice(
      static_cast<std::int64_t>(replica_->flat().range(block).first),
      static_cast<std::int64_t>(replica_->flat().range(block).elements));
  TraceScope scope(trace(), label(TraceLane::kCommunication, "gather", block, whole.elements()));
  if (options_.partition == nn::Partition::kLayer) {
    group_->broadcast(data_of(whole), replica_->plan().shards.owner(block));
  } else {
    group_->all_gather(data_of(replica_->mine(block).parameters), data_of(whole));
  }
  return scope.sent(part_bytes(block, whole.dtype()));
}

// Others gather parameters for a forward that this worker has no part in: it gives its own.
void Zero::stand_in_for_forward() {
  if (!replica_->plan().sharding.parameters) return;
  for (std::size_t block = 0; block < replica_->model().size(); ++block) enter(block);
  replica_->ops().synchronize();
}

// The same for a whole micro-batch, with gradients that are zero.
void Zero::stand_in_for_micro_batch(std::int64_t index) {
  const nn::Sharding& sharding = replica_->plan().sharding;
  if (!sharding.gradients && !sharding.parameters) return;
  micro_batch_ = index;
  adds_up_ = sharding.gradients || index + 1 == most_micro_batches_;
  stand_in_for_forward();
  for (std::size_t block = replica_->model().size(); block-- > 0;) {
    before_backward(block);
    after_backward(block);
  }
}

UpdateResult Zero::update(const UpdateRequest& request) {
  const bool shares = replica_->plan().sharding.gradients || replica_->plan().sharding.parameters;
  for (std::int64_t i = micro_batches_; i < most_micro_batches_; ++i) stand_in_for_micro_batch(i);
  const bool left = !shares && (!options_.overlap || micro_batches_ == 0);
  for (std::size_t block = replica_->model().size(); left && block-- > 0;) add_up(block);
  wait_for(pushed_, {.lane = TraceLane::kWaiting, .kind = "wait for", .of = "gradients"});

  UpdateResult result;
  result.gradient_norm = norm_.take(world_, *replica_) / request.loss_scale;
  result.skipped = !std::isfinite(result.gradient_norm);
  if (result.skipped) return result;
  {
    const TraceScope scope(trace(), {.lane = TraceLane::kCompute, .kind = "update"});
    for (std::size_t block = 0; block < replica_->flat().blocks(); ++block) {
      update_mine(*replica_, block, request, result.gradient_norm);
      replica_->ops().synchronize();
      gather_parameters(block);
    }
  }
  wait_for(pushed_, {.lane = TraceLane::kWaiting, .kind = "wait for", .of = "parameters"});
  return result;
}

StepSummary Zero::end_step(const StepEnd& mine) {
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "agree", .of = "to end"});
  return agree_to_end(world_, mine, {thread_.take_cost(), exposed_seconds_}, most_micro_batches_);
}

}  // namespace lockstep::parallel
