#include "lockstep/parallel/ddp/ddp.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/comm/device_communicator.h"
#include "lockstep/comm/options.h"
#include "lockstep/nn/replica/state_stream.h"
#include "lockstep/parallel/communication/gathered.h"
#include "lockstep/parallel/compression/own_momentum.h"
#include "lockstep/parallel/offload/local_update.h"
#include "lockstep/parallel/strategy/agreement.h"
#include "lockstep/parallel/strategy/communication_group.h"
#include "lockstep/tensor/host_view.h"

namespace lockstep::parallel {
namespace {

constexpr double kMegabyte = 1 << 20;

// All residuals, and the staging of the largest.
CompressedAllReduce::Memory memory_of(std::span<const Bucket> buckets, DType gradients, int workers,
                                      const ParallelOptions& options) {
  CompressedAllReduce::Memory all;
  for (const Bucket& bucket : buckets) {
    const auto one = CompressedAllReduce::memory(bucket.range.elements, gradients, workers,
                                                 options.compression, options.device);
    all.residual_elements += one.residual_elements;
    all.staging_bytes = std::max(all.staging_bytes, one.staging_bytes);
  }
  constexpr std::size_t kLine = 16;  // in whole lines of cache, as plans count bytes
  all.residual_elements = (all.residual_elements + kLine - 1) / kLine * kLine;
  return all;
}

bool compresses(const ParallelOptions& options) {
  return options.compression.compression != Compression::kNone;
}

// Not with the tree, whose order of summation differs. Not without overlap, where there is nothing
// to gain. Not with compression, where the whole table is smaller than its rows. Not with gradients
// off the device, which move as whole blocks. Not on a GPU, whose link to others is its memory's.
// Not with pipelines, whose stages add up the gradients of a shared table.
std::optional<TableRows> table_rows_for(const ParallelOptions& options,
                                        const WorkerPosition& position,
                                        const nn::MemoryPlan& plan) {
  if (options.reduction == Reduction::kTree || !options.overlap || compresses(options) ||
      plan.has_gradients_in_flight() || plan.device != Device{} || position.workers == 1 ||
      plan.stages > 1) {
    return std::nullopt;
  }
  return TableRows::find(plan, position.workers, position.most_micro_batches > 1);
}

Call reduce_call(Data gradients, const std::string& algorithm) {
  Call call = all_reduce(gradients);
  if (algorithm != kAutoAlgorithm) call.algorithm = algorithm;
  return call;
}

}  // namespace

Ddp::Ddp(Communicator& world, const ParallelOptions& options, std::int64_t most_micro_batches)
    : world_(world),
      options_(options),
      most_micro_batches_(most_micro_batches),
      algorithm_(all_reduce_algorithm(options, world.size())),
      group_(communication_group(world, options)) {
  if (options.expert > 1) expert_data_.emplace(world, options);
}

std::span<std::byte> Ddp::symmetric_memory(std::size_t bytes) {
  memory_ = group_->allocate(bytes);
  return {memory_.data(), memory_.bytes()};
}

std::span<std::byte> Ddp::host_symmetric_memory(std::size_t bytes) {
  ParallelOptions on_host = options_;
  on_host.device = Device{};
  host_algorithm_ = all_reduce_algorithm(on_host, workers());
  host_group_ = host_group(world_);
  host_memory_ = host_group_->allocate(bytes);
  return {host_memory_.data(), host_memory_.bytes()};
}

Communicator& Ddp::group_of(bool experts) const {
  if (experts) return expert_data_->of(host_group_ != nullptr ? Device{} : options_.device);
  return host_group_ != nullptr ? *host_group_ : *group_;
}

std::vector<Bucket> Ddp::buckets(const ParallelOptions& options, const WorkerPosition& position,
                                 const nn::MemoryPlan& plan) {
  const auto rows = table_rows_for(options, position, plan);
  return plan_buckets(rows ? rows->segments(plan.flat) : segments_of(plan.flat),
                      size_of(plan.setup.gradient),
                      {.first = static_cast<std::size_t>(options.first_bucket_mb * kMegabyte),
                       .others = static_cast<std::size_t>(options.bucket_mb * kMegabyte)});
}

std::vector<Request> Ddp::memory(const ParallelOptions& options, const WorkerPosition& position,
                                 const nn::MemoryPlan& plan) {
  std::vector<Request> requests;
  if (const auto rows = table_rows_for(options, position, plan)) {
    requests.push_back(
        {.name = "table rows", .group = kCommunicationGroup, .bytes = rows->bytes()});
  }
  if (compresses(options)) {
    const auto memory =
        memory_of(buckets(options, position, plan), plan.setup.gradient, position.workers, options);
    // On a GPU the staging is whole pages of symmetric memory.
    const bool in_pages = options.device != Device{} && position.workers > 1;
    const std::size_t staging =
        in_pages ? symmetric_device_bytes(std::max<std::size_t>(memory.staging_bytes, 1))
                 : memory.staging_bytes;
    requests.push_back({.name = "compression",
                        .group = kCommunicationGroup,
                        .bytes = memory.residual_elements * sizeof(float) + staging +
                                 codec_device_bytes(options.device)});
  }
  return requests;
}

Traffic Ddp::traffic(const ParallelOptions& options, const WorkerPosition& position,
                     const nn::MemoryPlan& plan, const PlannedGroups& calls) {
  Traffic traffic;
  const std::string algorithm = all_reduce_algorithm(options, position.workers);
  const DType dtype = plan.setup.gradient;
  for (const Bucket& bucket : buckets(options, position, plan)) {
    const Call call = reduce_call(Data(nullptr, bucket.range.elements, dtype), algorithm);
    traffic.gradients += calls.sent(call, bucket.experts);
  }
  if (const auto rows = table_rows_for(options, position, plan)) {
    traffic.rows = SentBytes::of(rows->links(calls.of_all), position.workers);
  }
  return traffic;
}

void Ddp::start(nn::Replica& replica) {
  replica_ = &replica;
  mover_.start(replica, trace());
  if (!compresses(options_)) overlapped_.start(replica, trace());
  if (options_.reduction == Reduction::kTree) {
    tree_ = TreeSum(replica.ops(), replica.states().gradients.device(), replica.flat().elements(),
                    most_micro_batches_);
  }
  table_rows_ = table_rows_for(options_, position(), replica.plan());
  if (table_rows_) table_rows_->set_memory(group_->allocate(table_rows_->bytes()));
  buckets_ = buckets(options_, position(), replica.plan());
  if (compresses(options_)) prepare_compression();
  if (DeviceUpdate::serves(replica.plan())) device_update_.emplace(replica, true);
  broadcast_states();
  compare_workers(true);
  bytes_across_before_ = bytes_across();
}

void Ddp::prepare_compression() {
  const DType dtype = replica_->setup().gradient;
  const auto all = memory_of(buckets_, dtype, workers(), options_);
  // Before the allocation that all workers make together, since what a GPU does for one of these
  // may wait for what it does for other workers of this process.
  residuals_ = Buffer(all.residual_elements * sizeof(float), options_.device);
  codec_device_ = make_codec_device(options_.device);
  staging_ = group_->allocate(all.staging_bytes);
  std::span<float> residuals(reinterpret_cast<float*>(residuals_.data()), all.residual_elements);
  for (const Bucket& bucket : buckets_) {
    const auto one = CompressedAllReduce::memory(bucket.range.elements, dtype, workers(),
                                                 options_.compression, options_.device);
    compressed_.emplace_back(*group_, options_.compression, bucket.range.elements, dtype,
                             residuals.first(one.residual_elements),
                             std::span(staging_.data(), one.staging_bytes), *codec_device_);
    residuals = residuals.subspan(one.residual_elements);
  }
}

void Ddp::broadcast_states() {
  nn::StateStream stream(*replica_, nn::StateAccess::kUpdate);
  while (stream.next()) {
    const nn::States states = stream.states();
    const bool experts = replica_->flat().has_experts(stream.block());
    const int source = replica_->plan().sharding.place_of(experts, source_);
    for (const Tensor& state :
         {states.master, states.first_moment, states.second_moment, states.velocity}) {
      if (!ops::is_given(state)) continue;
      const Data data(state.data(), state.elements(), state.dtype());
      Communicator& common = state.device() == Device{} ? world_ : *group_;
      (experts ? expert_data_->of(state.device()) : common).broadcast(data, source);
    }
  }
  replica_->round_parameters();
}

std::string Ddp::compare_workers(bool /*whole*/) {
  overlapped_.finish();
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "compare parameters"});
  ContentHash common, experts;
  nn::StateStream stream(*replica_, nn::StateAccess::kRead, &nn::States::master);
  while (stream.next()) {
    const HostView master(stream.states().master);
    ContentHash& hash = replica_->flat().has_experts(stream.block()) ? experts : common;
    hash.add(std::span<const std::byte>(master.tensor().data(), master.tensor().bytes()));
  }
  return waits_.during([&] {
    return agree_on_hashes(world_, common.hex(), experts.hex(), replica_->plan().sharding);
  });
}

std::optional<Share> Ddp::next(const StepPlan& plan, std::int64_t steps, std::int64_t last_step) {
  if (steps >= last_step) return std::nullopt;
  step_ = steps + 1;
  has_gradients_ = false;
  return share_of(plan, step_, worker(), workers());
}

StepStart Ddp::begin_step(const StepStart& mine) {
  const double before = std::exchange(loss_scale_, mine.loss_scale);
  if (before != mine.loss_scale) {
    for (CompressedAllReduce& one : compressed_) {
      one.scale_residual(static_cast<float>(mine.loss_scale / before));
    }
  }
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "agree", .of = "to begin"});
  return agree_to_begin(world_, mine, waits_);
}

void Ddp::expect_update(const UpdateRequest& request) {
  own_clip_.begin_step(request.optimizer.max_grad_norm * request.loss_scale, workers());
  OwnMomentum momentum = own_momentum(request.optimizer);
  momentum.clip = &own_clip_;
  for (CompressedAllReduce& one : compressed_) one.set_momentum(momentum);
}

void Ddp::begin_micro_batch(std::int64_t index, std::int64_t count) {
  const bool tree = options_.reduction == Reduction::kTree;
  mover_.begin_micro_batch(!tree && index > 0);
  if (tree && index > 0) tree_.keep(replica_->states().gradients, index - 1);
  if (count == 0) overlapped_.finish();  // no forward does it
  if ((tree || index == 0) && (!mover_.moves_gradients() || count == 0)) {
    zeroes_later_ = overlapped_.under_way();
    if (count == 0) replica_->zero_gradients();
    if (count > 0 && !zeroes_later_) begin_gradients();
  }
  micro_batches_ = count;
  is_last_ = index + 1 == count;
  replica_->set_separate_sparse_gradient(is_last_ && table_rows_);
  next_bucket_ = 0;
}

void Ddp::resume_micro_batch(std::int64_t index, std::int64_t count) {
  is_last_ = index + 1 == count;
}

void Ddp::before_forward(std::size_t block) {
  overlapped_.before_forward(block);
  mover_.before_forward(block);
}

// A codec may have made numbers of the zeros between parameters, which no backward overwrites.
void Ddp::begin_gradients() {
  compresses(options_) ? replica_->zero_gradients() : replica_->begin_gradients();
}

void Ddp::before_backward(std::size_t block) {
  if (std::exchange(zeroes_later_, false)) begin_gradients();
  mover_.before_backward(block);
}

void Ddp::leave() noexcept {
  overlapped_.settle();
  thread_.settle();
  mover_.settle();
}

void Ddp::finished_up_to(std::size_t block, std::size_t end) {
  accumulated(block, {0, end});  // before it in the flat buffer are blocks whose backward has ended
}

void Ddp::accumulated(std::size_t block, const nn::FlatRange& range) {
  if (!is_last_ || !options_.overlap || mover_.moves_gradients()) return;
  reduce_ready({block, range});
}

void Ddp::after_backward(std::size_t block) {
  mover_.after_backward(block);
  if (!is_last_ || !options_.overlap) return;
  if (replica_->model().is_copy(block)) return;  // before it in the flat buffer is what continues
  reduce_ready({block});
  if (block > 0 || !table_rows_) return;
  replica_->ops().synchronize();
  thread_.push([this] { return exchange_rows(); });
}

void Ddp::reduce_ready(const Progress& progress) {
  for (; next_bucket_ < buckets_.size() && is_ready(buckets_[next_bucket_], progress);
       ++next_bucket_) {
    push(next_bucket_);
  }
}

// A GPU adds in the order of its operations; on the CPU the communication thread does.
void Ddp::push(std::size_t bucket) {
  if (on_gpu() && micro_batches_ > 0) finish_tree(bucket);
  const Event written = replica_->ops().record();
  thread_.push([this, bucket, written] {
    written.wait();
    return reduce(bucket);
  });
}

void Ddp::finish_tree(std::size_t bucket) {
  if (options_.reduction != Reduction::kTree) return;
  const nn::FlatRange range = buckets_[bucket].range;
  tree_.finish(replica_->states().slice(range).gradients, range.first, micro_batches_ - 1);
}

// Until the bucket holds what this worker's micro-batches have made.
void Ddp::complete(std::size_t bucket) {
  if (micro_batches_ == 0) return;
  // Gradients are stored in the order in which buckets have them.
  mover_.await_gradients(buckets_[bucket].ready_after);
  if (options_.reduction != Reduction::kTree || on_gpu()) return;
  const TraceScope scope(trace(), label_of(bucket, TraceLane::kCommunication, "add up"));
  finish_tree(bucket);
}

Data Ddp::part_of_gradients(nn::FlatRange range) const {
  const Tensor part = replica_->states().slice(range).gradients;
  return {part.data(), part.elements(), part.dtype()};
}

TraceLabel Ddp::label_of(std::size_t bucket, TraceLane lane, std::string_view kind) const {
  return {.lane = lane,
          .kind = kind,
          .of = "bucket",
          .index = static_cast<std::int64_t>(bucket),
          .elements = buckets_[bucket].range.elements};
}

std::uint64_t Ddp::reduce(std::size_t bucket) {
  complete(bucket);
  TraceScope scope(trace(), label_of(bucket, TraceLane::kCommunication, "reduce"));
  const Data data = part_of_gradients(buckets_[bucket].range);
  if (compresses(options_)) {
    const auto seed = random_word(static_cast<std::uint64_t>(step_), 0, bucket);
    return scope.sent(compressed_[bucket].run(data, seed));
  }
  Communicator& group = group_of(buckets_[bucket].experts);
  if (group.size() == 1) return scope.sent(0);
  const std::string& algorithm = host_group_ != nullptr ? host_algorithm_ : algorithm_;
  return scope.sent(sent_during(group, [&] { group.run(reduce_call(data, algorithm)); }));
}

std::uint64_t Ddp::exchange_rows() {
  TraceScope scope(trace(), {.lane = TraceLane::kCommunication, .kind = "exchange", .of = "rows"});
  return scope.sent(sent_during(*group_, [&] {
    table_rows_->exchange(*group_, micro_batches_ > 0 ? replica_->sparse_gradient() : std::nullopt);
  }));
}

// Waits bucket by bucket where a trace records it.
void Ddp::wait_for_buckets() {
  replica_->ops().synchronize();  // what a GPU still computes is no wait for others
  const auto begin = SteadyClock::now();
  const std::size_t rows = table_rows_ ? 1 : 0;
  for (std::size_t i = 0; trace().on() && i < buckets_.size(); ++i) {
    const std::size_t later = buckets_.size() - i - 1 + rows;
    if (thread_.under_way() <= later) continue;
    const TraceScope scope(trace(), label_of(i, TraceLane::kWaiting, "wait for"));
    thread_.wait(later);
  }
  if (trace().on() && thread_.under_way() > 0) {
    const TraceScope scope(trace(),
                           {.lane = TraceLane::kWaiting, .kind = "wait for", .of = "rows"});
    thread_.wait();
  }
  thread_.wait();
  waits_.add(seconds_since(begin));
}

// In FP8 all workers scale alike, by the largest magnitude that any of them has seen. The first
// scales come from each worker's own first micro-batch; from the first update on they are those of
// worker 0, which has micro-batches if any worker has.
void Ddp::agree_on_scaling() {
  if (!ops::is_given(replica_->scaling()) || workers() == 1) return;
  const TraceScope scope(trace(),
                         {.lane = TraceLane::kWaiting, .kind = "agree", .of = "on scales"});
  const auto data = [](const Tensor& tensor) {
    return Data(tensor.data(), tensor.elements(), tensor.dtype());
  };
  const auto begin = SteadyClock::now();
  group_->all_reduce(data(replica_->amax()), ReduceOp::kMax);
  if (!std::exchange(scales_agree_, true)) group_->broadcast(data(replica_->scaling()), 0);
  waits_.add(seconds_since(begin));
}

UpdateResult Ddp::traced_update(const UpdateRequest& request) {
  const TraceScope scope(trace(), {.lane = TraceLane::kCompute, .kind = "update"});
  if (table_rows_) table_rows_->add(*replica_);
  UpdateRequest beside = request;
  if (workers() > 1) {
    beside.optimizer = optimizer_beside(options_.compression, request.optimizer);
    if (takes_own_momentum(options_.compression.compression)) {
      beside.optimizer.max_grad_norm = 0;  // own_clip_ did
    }
  }
  if (device_update_) return device_update_->run(beside);
  replica_->update_scaling();
  if (overlapped_.serves() && (request.may_overlap || options_.device != Device{})) {
    const UpdateResult result = overlapped_.update(mover_, beside);
    if (!request.may_overlap) overlapped_.finish();
    return result;
  }
  return local_update(*replica_, mover_, beside);
}

void Ddp::finish_gradients() {
  if (std::exchange(has_gradients_, true)) return;
  reduce_ready({0});
  // The others exchange rows after their backward, and this worker has none without a share.
  if (table_rows_ && micro_batches_ == 0) thread_.push([this] { return exchange_rows(); });
  wait_for_buckets();
  mover_.wait();
}

// Not on a GPU, where the host does not wait for a step's losses before its update; nor with error
// feedback, whose residuals have changed by then.
std::optional<double> Ddp::commit_step(std::span<const double> losses) {
  if (device_update_ || options_.device != Device{} || compresses(options_)) return std::nullopt;
  finish_gradients();
  const TraceScope scope(trace(),
                         {.lane = TraceLane::kWaiting, .kind = "agree", .of = "to update"});
  return waits_.during([&] { return sum_of_losses(world_, losses, most_micro_batches_); });
}

UpdateResult Ddp::update(const UpdateRequest& request) {
  finish_gradients();
  has_gradients_ = false;
  agree_on_scaling();
  return traced_update(request);
}

void Ddp::complete_gradients() {
  finish_gradients();
  has_gradients_ = false;
}

std::uint64_t Ddp::bytes_across() const {
  const std::uint64_t of_hosts =
      host_group_ == nullptr ? 0 : host_group_->bytes_across().value_or(0);
  const std::uint64_t of_experts = expert_data_ ? expert_data_->bytes_across() : 0;
  return group_->bytes_across().value_or(0) + of_hosts + of_experts;
}

StepSummary Ddp::end_step(const StepEnd& mine) {
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "agree", .of = "to end"});
  const std::uint64_t all = bytes_across();
  const std::uint64_t across = all - std::exchange(bytes_across_before_, all);
  return agree_to_end(world_, mine, {thread_.take_cost(), across}, waits_, most_micro_batches_);
}

}  // namespace lockstep::parallel
