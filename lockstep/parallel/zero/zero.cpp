#include "lockstep/parallel/zero/zero.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/parallel/communication/gathered.h"
#include "lockstep/parallel/gradients/first_writers.h"
#include "lockstep/parallel/gradients/model_norm.h"
#include "lockstep/parallel/gradients/shared_blocks.h"
#include "lockstep/parallel/offload/local_update.h"
#include "lockstep/parallel/strategy/agreement.h"
#include "lockstep/tensor/host_view.h"

namespace lockstep::parallel {
namespace {

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
      exchange_(make_exchange(world, options)) {}

std::span<std::byte> Zero::symmetric_memory(std::size_t bytes) {
  memory_ = exchange_->allocate(bytes);
  return {memory_.data(), memory_.bytes()};
}

std::span<std::byte> Zero::host_symmetric_memory(std::size_t bytes) {
  host_memory_ = exchange_->allocate_host(bytes);
  return {host_memory_.data(), host_memory_.bytes()};
}

void Zero::start(nn::Replica& replica) {
  replica_ = &replica;
  const nn::FlatParameters& flat = replica.flat();
  exchange_->start(replica.plan());
  norm_ = ShardedNorm(replica.plan());
  if (options_.reduction == Reduction::kTree) {
    tree_ = TreeSum(replica.ops(), replica.states().gradients.device(), flat.elements(),
                    most_micro_batches_);
  }
  mover_.start(replica, trace());
  early_.start(replica, mover_, trace());
  const bool beside_gpu = replica.plan().device != Device{};
  if (beside_gpu && StagedUpdate::serves(replica.plan())) {
    staged_.emplace(replica, replica.host_ops());
  }
  gathers_.assign(replica.plan().gathers.size(), 0);
  added_up_.assign(flat.blocks(), 0);
  first_writers_ = first_writers(replica.plan());
  replica.round_parameters();
  for (std::size_t block = 0; block < flat.blocks(); ++block) gather_parameters(block);
  thread_.wait();
  world_.barrier();
}

void Zero::leave() noexcept {
  thread_.settle();
  if (staged_) staged_->settle();
  early_.settle();
  mover_.settle();
}

std::optional<Share> Zero::next(const StepPlan& plan, std::int64_t steps, std::int64_t last_step) {
  if (steps >= last_step) return std::nullopt;
  return share_of(plan, steps + 1, worker(), workers());
}

StepStart Zero::begin_step(const StepStart& mine) {
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "agree", .of = "to begin"});
  thread_.take_cost();  // of what was gathered between steps
  bytes_across_before_ = exchange_->bytes_across();
  return agree_to_begin(world_, mine, waits_);
}

void Zero::begin_micro_batch(std::int64_t index, std::int64_t count) {
  const nn::Sharding& sharding = replica_->plan().sharding;
  const bool tree = options_.reduction == Reduction::kTree;
  mover_.begin_micro_batch(!tree && index > 0);
  if (!sharding.gradients) {
    if (tree && index > 0) tree_.keep(replica_->states().gradients, index - 1);
    if ((tree || index == 0) && (!mover_.moves_gradients() || count == 0)) {
      // A codec may make any numbers of the padding, where it reads infinities.
      const bool has_codec = options_.quantized_gradients != Quantization::kNone;
      count == 0 || has_codec ? replica_->zero_gradients() : replica_->begin_gradients();
    }
  }
  resume_micro_batch(index, count);
}

void Zero::resume_micro_batch(std::int64_t index, std::int64_t count) {
  const nn::Sharding& sharding = replica_->plan().sharding;
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
  waits_.add(seconds_since(begin));
}

// Earlier steps have finished with their memory, so memory whose lifetime begins here is free for
// the gathers that the plan has at this step, and for the gradients of this backward.
void Zero::enter(std::size_t step) {
  const nn::MemoryPlan& plan = replica_->plan();
  if (!plan.sharding.parameters && !plan.sharding.gradients) return;
  replica_->ops().synchronize();
  const auto at = static_cast<int>(step);
  for (std::size_t i = 0; plan.sharding.parameters && i < plan.gathers.size(); ++i) {
    if (plan.gathers[i].starts == at) gathers_[i] = push([this, i] { return run_gather(i); });
  }
  for (std::size_t i = 0; plan.sharding.parameters && i < plan.gathers.size(); ++i) {
    const nn::Gather& gather = plan.gathers[i];
    if (gather.needed != at) continue;
    wait_for(gathers_[i], label(TraceLane::kWaiting, "wait for", gather.unit,
                                plan.flat.range(gather.unit).elements));
  }
}

void Zero::before_forward(std::size_t block) {
  mover_.before_forward(block);
  enter(block);
}

void Zero::before_backward(std::size_t block) {
  mover_.before_backward(block);
  prepare_backward(block);
}

void Zero::prepare_backward(std::size_t block) {
  enter(backward_step(block));
  if (!replica_->plan().sharding.gradients) return;
  // Gradients of the block before the last one had their memory until now; those of an earlier
  // micro-batch have theirs no longer.
  const nn::Model& model = replica_->model();
  const std::size_t blocks = added_up_.size();
  const bool begins = !model.is_copy(block) && block + 1 == model.chunk_of(block).end;
  if (begins || block + 2 < blocks) {
    const std::size_t done = begins ? 0 : block + 2;
    wait_for(begins ? last_added_up_ : added_up_[done],
             label(TraceLane::kWaiting, "wait for", done, replica_->flat().range(done).elements));
  }
  for (std::size_t unit = 0; unit < first_writers_.size(); ++unit) {
    if (first_writers_[unit] == block) clear_gradients(unit);
  }
}

// Starts from this worker's share of earlier micro-batches; the reduction returns the sum.
void Zero::clear_gradients(std::size_t block) {
  const Tensor gradients = replica_->gradients_of(block);
  if (!ops::is_given(gradients)) return;
  Ops& ops = replica_->ops();
  ops.in_order([&] { fill_zero(gradients); });
  if (micro_batch_ == 0) return;
  const Tensor mine = part_in(block, gradients);
  if (mine.elements() == 0) return;
  if (replica_->gradient_file() != nullptr) {
    mover_.await(mover_.fetch_gradients(block, 0, mine, ops.record()));
  } else {
    ops.in_order([&] { copy(mine, replica_->mine(block).gradients); });
  }
}

// This worker's part of a whole unit.
Tensor Zero::part_in(std::size_t block, const Tensor& unit) const {
  const nn::FlatRange mine = replica_->my_range(block);
  if (mine.elements == 0) return unit.slice(0, 0);
  return unit.slice(static_cast<std::int64_t>(mine.first - replica_->flat().range(block).first),
                    static_cast<std::int64_t>(mine.elements));
}

void Zero::after_backward(std::size_t block) {
  mover_.after_backward(block);
  finish_backward(block);
}

void Zero::finish_backward(std::size_t block) {
  const bool has_to = replica_->plan().sharding.gradients || replica_->plan().sharding.parameters;
  if (adds_up_ && (options_.overlap || has_to)) add_up(block);
  if (adds_up_ && !options_.overlap) thread_.wait();
}

void Zero::add_up(std::size_t block) {
  if (replica_->flat().range(block).elements == 0) return;
  if (!mover_.moves_gradients()) finish_tree(block);
  const bool is_complete = completes();
  const Event written = replica_->ops().record();
  added_up_[block] = last_added_up_ = push([this, block, is_complete, written] {
    written.wait();
    if (mover_.moves_gradients()) {
      mover_.await_gradients(block);
      if (micro_batches_ > 0) finish_tree(block);
    }
    const std::uint64_t sent = run_add_up(block);
    if (is_complete && early_.is_on()) early_.push(block);
    return sent;
  });
}

// Whether this micro-batch completes the step's gradients. Where every micro-batch is reduced, it
// is the last one of the worker that has most of them.
bool Zero::completes() const {
  return !replica_->plan().sharding.gradients || micro_batch_ + 1 == most_micro_batches_;
}

void Zero::finish_tree(std::size_t block) {
  if (options_.reduction != Reduction::kTree || replica_->plan().sharding.gradients) return;
  const std::size_t elements = replica_->flat().range(block).elements;
  const TraceScope scope(
      trace(), label(mover_.moves_gradients() ? TraceLane::kCommunication : TraceLane::kCompute,
                     "add up", block, elements));
  tree_.finish(replica_->gradients_of(block), replica_->flat().range(block).first,
               micro_batches_ - 1);
}

std::uint64_t Zero::run_add_up(std::size_t block) {
  const Tensor gradients = replica_->gradients_of(block);
  TraceScope scope(trace(),
                   label(TraceLane::kCommunication, "reduce", block, gradients.elements()));
  if (replica_->gradient_file() == nullptr) {
    return scope.sent(sent_during(
        *exchange_, [&] { exchange_->add_up(block, gradients, replica_->mine(block).gradients); }));
  }
  // Waits until the previous shard has been written to the file.
  mover_.await(last_arrived_);
  const Tensor mine = replica_->arriving_gradients(block);
  const std::uint64_t sent =
      sent_during(*exchange_, [&] { exchange_->add_up(block, gradients, mine); });
  if (mine.elements() > 0) last_arrived_ = mover_.store_gradients(block, mine);
  return scope.sent(sent);
}

std::uint64_t Zero::run_gather(std::size_t gather) {
  const std::size_t block = replica_->plan().gathers[gather].unit;
  const Tensor whole = replica_->gathered(gather);
  TraceScope scope(trace(), label(TraceLane::kCommunication, "gather", block, whole.elements()));
  Tensor mine = replica_->mine(block).parameters;
  if (replica_->plan().tiers.parameters == Tier::kFile) {
    mine = part_in(block, whole);
    mover_.read_parameters(block, mine);
  }
  return scope.sent(sent_during(*exchange_, [&] { exchange_->gather(block, mine, whole); }));
}

// Stages 1 and 2.
void Zero::gather_parameters(std::size_t block, const Event& updated) {
  const bool is_whole = !replica_->plan().sharding.parameters;
  if (!is_whole || replica_->flat().range(block).elements == 0) return;
  push([this, block, updated] {
    updated.wait();
    return run_gather_parameters(block);
  });
}

std::uint64_t Zero::run_gather_parameters(std::size_t block) {
  const Tensor whole = replica_->states().parameters.slice(
      static_cast<std::int64_t>(replica_->flat().range(block).first),
      static_cast<std::int64_t>(replica_->flat().range(block).elements));
  TraceScope scope(trace(), label(TraceLane::kCommunication, "gather", block, whole.elements()));
  return scope.sent(sent_during(
      *exchange_, [&] { exchange_->gather(block, replica_->mine(block).parameters, whole); }));
}

// Other workers gather parameters for a forward without this worker: it contributes its shards.
void Zero::stand_in_for_forward() {
  if (!replica_->plan().sharding.parameters) return;
  for (std::size_t block = 0; block < replica_->model().size(); ++block) enter(block);
  replica_->ops().synchronize();
}

// The same for a whole micro-batch, with gradients that are zero.
void Zero::stand_in_for_micro_batch(std::int64_t index) {
  const nn::Sharding& sharding = replica_->plan().sharding;
  if (!sharding.gradients && !sharding.parameters) return;
  mover_.wait();  // parameters come to where gradients may still leave from
  micro_batch_ = index;
  adds_up_ = sharding.gradients || index + 1 == most_micro_batches_;
  stand_in_for_forward();
  for (std::size_t block = replica_->model().size(); block-- > 0;) {
    prepare_backward(block);
    finish_backward(block);
  }
}

ModelNorm Zero::gradient_norm() {
  const std::vector<double> sums = norm_.take(world_, *replica_, mover_, waits_);
  return norm_of_model(*replica_, sums, replicated_squares_of_all());
}

// Of the shards of all workers; those of experts are on workers that hold the same experts.
std::vector<double> Zero::replicated_squares_of_all() {
  const std::vector<double> mine = replicated_squares_of_mine(*replica_, mover_);
  if (mine.empty()) return {};
  const std::vector<double> all =
      waits_.during([&] { return gathered<double>(world_, std::span(mine)); });
  const nn::Sharding& sharding = replica_->plan().sharding;
  std::vector<double> squares(mine.size());
  for (int worker = 0; worker < world_.size(); ++worker) {
    const bool has_ours = sharding.expert_rank(worker) == sharding.expert_rank(sharding.worker);
    for (std::size_t block = 0; block < mine.size(); ++block) {
      if (replica_->flat().has_experts(block) && !has_ours) continue;
      squares[block] += all[static_cast<std::size_t>(worker) * mine.size() + block];
    }
  }
  return squares;
}

UpdateResult Zero::update(const UpdateRequest& request) {
  const bool shares = replica_->plan().sharding.gradients || replica_->plan().sharding.parameters;
  for (std::int64_t i = micro_batches_; i < most_micro_batches_; ++i) stand_in_for_micro_batch(i);
  const bool left = !shares && (!options_.overlap || micro_batches_ == 0);
  for (std::size_t block = replica_->model().size(); left && block-- > 0;) add_up(block);
  replica_->ops().synchronize();  // what a GPU still computes is no wait for others
  wait_for(pushed_, {.lane = TraceLane::kWaiting, .kind = "wait for", .of = "gradients"});
  exchange_->forget();
  mover_.wait();

  const bool is_updated = early_.is_on();
  if (is_updated) early_.finish();

  add_up_shared_blocks(*replica_);
  UpdateResult result = result_of(gradient_norm(), request.loss_scale);
  if (result.skipped) return result;
  {
    const TraceScope scope(trace(), {.lane = TraceLane::kCompute, .kind = "update"});
    update_blocks(request, result.gradient_norm, is_updated);
  }
  wait_for(pushed_, {.lane = TraceLane::kWaiting, .kind = "wait for", .of = "parameters"});
  return result;
}

void Zero::update_blocks(const UpdateRequest& request, double gradient_norm, bool is_updated) {
  const bool on_host = replica_->plan().tiers.update() == Tier::kHost;
  Ops& update_ops = on_host ? replica_->host_ops() : replica_->ops();
  const bool is_staged = staged_ && !is_updated;
  if (is_staged) staged_->begin(request, gradient_norm);
  for (std::size_t block = 0; block < replica_->flat().blocks(); ++block) {
    Event updated;
    if (is_staged) {
      updated = staged_->update(block);
    } else if (!is_updated) {
      update_mine(*replica_, update_ops, mover_, block, request, gradient_norm);
      update_ops.synchronize();
    }
    gather_parameters(block, updated);
  }
  if (is_staged) staged_->synchronize();
}

StepSummary Zero::end_step(const StepEnd& mine) {
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "agree", .of = "to end"});
  const std::uint64_t across = exchange_->bytes_across() - bytes_across_before_;
  return agree_to_end(world_, mine, {thread_.take_cost(), across}, waits_, most_micro_batches_);
}

// At stages 1 and 2 every worker holds all parameters, at stage 3 what it gathers.
std::string Zero::compare_workers(bool whole) {
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "compare parameters"});
  ContentHash common, experts;
  const nn::FlatParameters& flat = replica_->flat();
  const auto add = [&](std::size_t block, const Tensor& parameters) {
    const HostView view(parameters);
    ContentHash& hash = flat.has_experts(block) ? experts : common;
    hash.add(std::span<const std::byte>(view.tensor().data(), view.tensor().bytes()));
  };
  const std::vector<nn::Gather>& gathers = replica_->plan().gathers;
  if (!replica_->plan().sharding.parameters) {
    for (std::size_t block = 0; block < flat.blocks(); ++block) {
      const nn::FlatRange range = flat.range(block);
      add(block, replica_->states().parameters.slice(static_cast<std::int64_t>(range.first),
                                                     static_cast<std::int64_t>(range.elements)));
    }
  } else {
    const std::size_t count = whole ? gathers.size() : std::min<std::size_t>(gathers.size(), 1);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t gather = whole ? i : compared_++ % gathers.size();
      push([this, gather] { return run_gather(gather); });
      thread_.wait();
      add(gathers[gather].unit, replica_->gathered(gather));
    }
  }
  return waits_.during([&] {
    return agree_on_hashes(world_, common.hex(), experts.hex(), replica_->plan().sharding);
  });
}

}  // namespace lockstep::parallel
