#include "lockstep/parallel/ddp.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/content_hash.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/gathered.h"
#include "lockstep/parallel/local_update.h"

namespace lockstep::parallel {
namespace {

constexpr double kMegabyte = 1 << 20;
constexpr std::string_view kAuto = "auto";
// These add up neighbours first, then pairs, then fours: the tree of parallel/tree_sum.h.
constexpr std::string_view kTreeAlgorithms[] = {"rabenseifner", "butterfly"};

std::string algorithm_for(const ParallelOptions& options, int workers) {
  if (options.reduction == Reduction::kFast) return options.algorithm;
  if (options.algorithm == kAuto) return std::string(workers > 2 ? kTreeAlgorithms[0] : kAuto);
  if (std::ranges::find(kTreeAlgorithms, options.algorithm) == std::end(kTreeAlgorithms)) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.algorithm = \"{}\" does not add up in the order of parallel.reduction = "
         "\"tree\"; use {}, or leave it \"auto\"",
         options.algorithm, fmt::join(kTreeAlgorithms, " or "));
  }
  return options.algorithm;
}

}  // namespace

Ddp::Ddp(Communicator& world, const ParallelOptions& options, std::int64_t most_micro_batches)
    : world_(world),
      options_(options),
      most_micro_batches_(most_micro_batches),
      algorithm_(algorithm_for(options, world.size())),
      reducers_(world.split(0, world.rank())) {}

std::span<std::byte> Ddp::gradient_memory(std::size_t bytes) {
  memory_ = reducers_->allocate(bytes);
  return {memory_.data(), memory_.bytes()};
}

std::vector<Request> Ddp::memory(const nn::MemoryPlan& plan) const {
  if (options_.reduction == Reduction::kFast) return {};
  return {{.name = "tree",
           .group = kCommunication,
           .bytes = TreeSum::bytes(plan.flat.elements(), most_micro_batches_)}};
}

void Ddp::start(nn::Replica& replica) {
  replica_ = &replica;
  if (options_.reduction == Reduction::kTree) {
    tree_ = TreeSum(replica.flat().elements(), most_micro_batches_);
  }
  buckets_ = plan_buckets(segments_of(replica.flat()), size_of(replica.setup().gradient),
                          {.first = static_cast<std::size_t>(options_.first_bucket_mb * kMegabyte),
                           .others = static_cast<std::size_t>(options_.bucket_mb * kMegabyte)});
  broadcast_states();
  compare_parameters();
}

void Ddp::broadcast_states() {
  const nn::States& states = replica_->states();
  for (const Tensor& row : {states.master, states.moment, states.variance, states.velocity}) {
    if (!ops::is_given(row)) continue;
    world_.broadcast(Data(row.data(), row.elements(), row.dtype()), 0);
  }
  replica_->round_parameters();
}

// Names those that differ from the first.
void Ddp::compare_parameters() {
  const Tensor& row = replica_->states().master;
  const std::string hash = content_hash({reinterpret_cast<const char*>(row.data()), row.bytes()});
  const std::vector<std::string> all = gathered_texts(world_, hash);
  std::vector<std::size_t> others;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i] != all[0]) others.push_back(i);
  }
  if (others.empty()) return;
  fail(ErrorCode::kMismatch,
       "the parameters of rank{} {} are no longer those of rank 0 after {} updates; memory or a "
       "kernel is at fault there, and the last checkpoint is worth more than this run",
       others.size() > 1 ? "s" : "", fmt::join(others, ", "), updates_);
}

std::optional<Share> Ddp::next(const StepPlan& plan, std::int64_t steps, std::int64_t last_step) {
  if (steps >= last_step) return std::nullopt;
  return share_of(plan, steps + 1, worker(), workers());
}

StepStart Ddp::begin_step(const StepStart& mine) {
  const std::array<std::int64_t, 3> numbers{mine.targets, mine.tokens, mine.stops ? 1 : 0};
  const std::vector<std::int64_t> all = gathered<std::int64_t>(world_, numbers);
  StepStart sum;
  for (std::size_t i = 0; i < all.size(); i += numbers.size()) {
    sum.targets += all[i];
    sum.tokens += all[i + 1];
    sum.stops = sum.stops || all[i + 2] != 0;
  }
  return sum;
}

void Ddp::begin_micro_batch(std::int64_t index, std::int64_t count) {
  const bool tree = options_.reduction == Reduction::kTree;
  if (tree && index > 0) tree_.keep(replica_->states().gradients.as<float>(), index - 1);
  if (tree || index == 0) replica_->zero_gradients();
  micro_batches_ = count;
  is_last_ = index + 1 == count;
  next_bucket_ = 0;
  exposed_seconds_ = 0;
}

void Ddp::after_backward(std::size_t block) {
  if (is_last_ && options_.overlap) reduce_ready(block);
}

// All that is complete once `block` has finished backward.
void Ddp::reduce_ready(std::size_t block) {
  bool synchronized = false;
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].ready_after >= block;
       ++next_bucket_) {
    if (!std::exchange(synchronized, true)) replica_->ops().synchronize();
    const Bucket& bucket = buckets_[next_bucket_];
    if (options_.reduction == Reduction::kTree) {
      const Tensor part = replica_->states().slice(bucket.range).gradients;
      tree_.finish(part.as<float>(), bucket.range.first, micro_batches_ - 1);
    }
    thread_.push([this, &bucket] { return reduce(bucket); });
  }
}

Data Ddp::part_of_gradients(nn::FlatRange range) const {
  const Tensor part = replica_->states().slice(range).gradients;
  return {part.data(), part.elements(), part.dtype()};
}

std::uint64_t Ddp::reduce(const Bucket& bucket) {
  const Data data = part_of_gradients(bucket.range);
  Call call = all_reduce(data);
  if (algorithm_ != kAuto) call.algorithm = algorithm_;
  reducers_->run(call);
  const auto n = static_cast<std::uint64_t>(workers());
  return 2 * (n - 1) * data.count * size_of(data.dtype) / n;
}

UpdateResult Ddp::update(const UpdateRequest& request) {
  reduce_ready(0);
  const auto begin = SteadyClock::now();
  thread_.wait();
  exposed_seconds_ = seconds_since(begin);
  const UpdateResult result = local_update(*replica_, request);
  ++updates_;
  if (options_.check_every > 0 && updates_ % options_.check_every == 0) compare_parameters();
  return result;
}

StepSummary Ddp::end_step(const StepEnd& mine) {
  constexpr std::size_t kNumbers = 5;
  const auto most = static_cast<std::size_t>(most_micro_batches_);
  const CommunicationThread::Cost cost = thread_.take_cost();
  std::vector<double> numbers{static_cast<double>(mine.losses.size()),
                              mine.cost.compute_seconds - exposed_seconds_, cost.seconds,
                              exposed_seconds_, static_cast<double>(cost.bytes)};
  numbers.insert(numbers.end(), mine.losses.begin(), mine.losses.end());
  numbers.resize(kNumbers + most);
  const std::vector<double> all = gathered<double>(world_, numbers);
  StepSummary summary;
  for (std::size_t i = 0; i < all.size(); i += numbers.size()) {
    const double* of = all.data() + i;
    summary.costs.push_back({.compute_seconds = of[1],
                             .communication_seconds = of[2],
                             .exposed_seconds = of[3],
                             .bytes_sent = static_cast<std::uint64_t>(of[4])});
    // One after the other, in the order of the micro-batches, whoever did them.
    for (std::size_t k = 0; k < static_cast<std::size_t>(of[0]); ++k) {
      summary.loss += of[kNumbers + k];
    }
  }
  return summary;
}

}  // namespace lockstep::parallel
