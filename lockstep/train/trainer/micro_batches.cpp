#include "lockstep/train/trainer/micro_batches.h"

#include <algorithm>

namespace lockstep::train {
namespace {

// Operations choose their algorithms when they first run.
constexpr int kCapturedRun = 2;
// Graphs take memory on the GPU; with more positions than this they would take too much.
constexpr std::size_t kMostCaptured = 16;

// Of a micro-batch: its step and its loss factor.
constexpr std::int64_t kNumbers = 2;

double sum_in_order(std::span<const float> losses) {
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum;
}

}  // namespace

MicroBatches::MicroBatches(nn::Replica& replica, bool draws, std::int64_t most)
    : replica_(replica), draws_(draws) {
  if (replica.ops().device() != Device{}) make_pinned(static_cast<std::size_t>(most));
}

void MicroBatches::begin_step(std::size_t micro_batches) {
  sums_.assign(micro_batches, 0);
  queued_.clear();
}

void MicroBatches::forward(const StageRun::Computation& computation, const nn::Batch& batch,
                           const nn::MicroBatch& micro_batch) {
  if (is_one_graph()) return;
  const auto chunk = static_cast<std::size_t>(computation.action.chunk);
  replica_.forward(chunk, computation.use, replica_.upload(batch), micro_batch);
}

void MicroBatches::backward(const StageRun::Computation& computation, const nn::Batch& batch,
                            const nn::MicroBatch& micro_batch, bool may_capture) {
  const auto number = static_cast<std::size_t>(computation.action.micro_batch);
  if (is_one_graph()) {
    queue(replica_.upload(batch), micro_batch, may_capture);
    return take(replica_.losses(), number);
  }
  const Tensor losses = compute_backward(computation, batch, micro_batch);
  if (!ops::is_given(losses)) return;
  if (replica_.ops().device() != Device{}) return take(losses, number);
  replica_.ops().synchronize();
  // Slices of a micro-batch come one after the other.
  sums_.at(number) += nn::sum_of(losses);
}

void MicroBatches::upload_ahead(const nn::Batch& batch) {
  // Stages of a pipeline upload a micro-batch for its forward and for its backward.
  if (is_one_graph()) replica_.upload_ahead(batch);
}

Tensor MicroBatches::compute_backward(const StageRun::Computation& computation,
                                      const nn::Batch& batch, const nn::MicroBatch& micro_batch) {
  const auto chunk = static_cast<std::size_t>(computation.action.chunk);
  const plan::BufferCounts& use = computation.use;
  switch (computation.action.kind) {
    case plan::ActionKind::kBackwardWeight:
      replica_.backward_weight(chunk, use);
      return {};
    case plan::ActionKind::kBackwardInput:
      return replica_.backward_input(chunk, use, replica_.upload(batch), micro_batch);
    default:
      return replica_.backward(chunk, use, replica_.upload(batch), micro_batch);
  }
}

bool MicroBatches::is_one_graph() const {
  return replica_.ops().device() != Device{} && replica_.model().stages() == 1;
}

// One for each micro-batch of a step, since the copies of the last may still be under way. They are
// not freed before the end: that waits for all work of the GPU, which may wait for this rank.
void MicroBatches::make_pinned(std::size_t copies) {
  while (numbers_.size() < copies) numbers_.emplace_back(kNumbers * sizeof(double));
  const std::size_t bytes = replica_.losses().bytes();
  while (returned_.size() < copies) returned_.emplace_back(bytes);
}

void MicroBatches::take(const Tensor& losses, std::size_t micro_batch) {
  make_pinned(queued_.size() + 1);
  const Tensor to = returned_[queued_.size()].tensor(DType::kF32, losses.shape());
  replica_.ops().in_order([&] { copy(to, losses); });
  queued_.push_back({micro_batch, to});
}

void MicroBatches::queue(const nn::Batch& batch, const nn::MicroBatch& micro_batch,
                         bool may_capture) {
  Ops& ops = replica_.ops();
  const Tensor there = replica_.step_numbers();
  make_pinned(queued_.size() + 1);
  const Tensor here = numbers_[queued_.size()].tensor(DType::kF64, {kNumbers});
  here.as<double>()[0] = micro_batch.step;
  here.as<double>()[1] = micro_batch.loss_factor;
  ops.in_order([&] { copy(there, here); });
  nn::MicroBatch read = micro_batch;
  read.step = ops::Scalar(there.slice(0, 1));
  read.loss_factor = ops::Scalar(there.slice(1, 1));
  const std::pair key{replica_.has_new_gradients(),
                      draws_ ? micro_batch.first_sequence : std::uint64_t{0}};
  const bool has_capacity = captured_.size() < kMostCaptured || captured_.contains(key);
  nn::TensorAxis* const tensor = replica_.tensor_axis();
  // Messages of a context group cannot be captured.
  const bool is_capturable = ops.can_capture() && !replica_.reads_back() &&
                             replica_.context_axis() == nullptr &&
                             (tensor == nullptr || tensor->can_capture());
  if (!may_capture || !is_capturable || !has_capacity || replica_.calibrates()) {
    replica_.forward_backward(batch, read);
    return;
  }
  Captured& captured = captured_[key];
  if (captured.step) {
    if (tensor != nullptr) tensor->add_sent(captured.bytes_sent);
  } else if (++captured.runs >= kCapturedRun) {
    const std::uint64_t before = tensor != nullptr ? tensor->bytes_sent() : 0;
    captured.step = capture(ops, [&] { replica_.forward_backward(batch, read); });
    if (tensor != nullptr) captured.bytes_sent = tensor->bytes_sent() - before;
  }
  if (captured.step) {
    captured.step->launch();
    replica_.gradients_are_written();
  } else {
    replica_.forward_backward(batch, read);
  }
}

std::vector<double> MicroBatches::losses() {
  if (replica_.ops().device() == Device{}) return sums_;
  replica_.ops().synchronize();
  if (const nn::TensorAxis* const tensor = replica_.tensor_axis()) tensor->throw_failure();
  if (const nn::ContextAxis* const context = replica_.context_axis()) context->throw_failure();
  if (const nn::ExpertAxis* const experts = replica_.expert_axis()) experts->throw_failure();
  if (const nn::PipelineAxis* const pipeline = replica_.pipeline_axis()) pipeline->throw_failure();
  std::ranges::fill(sums_, 0.0);
  for (const Returned& one : queued_) {
    sums_.at(one.micro_batch) += sum_in_order(one.losses.as<const float>());
  }
  return sums_;
}

}  // namespace lockstep::train
