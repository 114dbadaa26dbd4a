#include "lockstep/train/trainer/micro_batches.h"

namespace lockstep::train {
namespace {

// Operations choose their algorithms when they first run.
constexpr int kCapturedRun = 2;
// Graphs take memory on the GPU; with more positions than this they would take too much.
constexpr std::size_t kMostCaptured = 16;

double sum_in_order(std::span<const float> losses) {
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum;
}

}  // namespace

void MicroBatches::begin_step(std::size_t micro_batches) {
  sums_.assign(micro_batches, 0);
  queued_ = 0;
}

void MicroBatches::forward(const StageRun::Computation& computation, const nn::Batch& batch,
                           const nn::MicroBatch& micro_batch) {
  if (replica_.ops().device() != Device{}) return;  // a graph with its backward
  const auto chunk = static_cast<std::size_t>(computation.action.chunk);
  replica_.forward(chunk, computation.use, batch, micro_batch);
}

void MicroBatches::backward(const StageRun::Computation& computation, const nn::Batch& batch,
                            const nn::MicroBatch& micro_batch, bool may_capture) {
  Ops& ops = replica_.ops();
  if (ops.device() == Device{}) {
    const auto chunk = static_cast<std::size_t>(computation.action.chunk);
    const plan::BufferCounts& use = computation.use;
    Tensor losses;
    switch (computation.action.kind) {
      case plan::ActionKind::kBackwardWeight:
        replica_.backward_weight(chunk, use);
        break;
      case plan::ActionKind::kBackwardInput:
        losses = replica_.backward_input(chunk, use, batch, micro_batch);
        break;
      default:
        losses = replica_.backward(chunk, use, batch, micro_batch);
    }
    if (!ops::is_given(losses)) return;
    ops.synchronize();
    sums_.at(static_cast<std::size_t>(computation.action.micro_batch)) = nn::sum_of(losses);
    return;
  }
  queue(replica_.upload(batch), micro_batch, may_capture);
  const std::size_t bytes = replica_.losses().bytes();
  if (returned_.size() <= queued_) returned_.emplace_back(bytes);
  const Tensor to = returned_[queued_].tensor(DType::kF32, replica_.losses().shape());
  ops.in_order([&] { copy(to, replica_.losses()); });
  ++queued_;
}

void MicroBatches::queue(const nn::Batch& batch, const nn::MicroBatch& micro_batch,
                         bool may_capture) {
  Ops& ops = replica_.ops();
  const Tensor there = replica_.step_numbers();
  // A buffer for each micro-batch of a step: the copy of the last may still be under way.
  constexpr std::size_t kNumbers = 2;
  const std::size_t needed = (queued_ + 1) * kNumbers * sizeof(double);
  if (numbers_.bytes() < needed) {
    ops.synchronize();
    numbers_ = PinnedBuffer(2 * needed);
  }
  const Tensor here = numbers_.tensor(DType::kF64, {kNumbers}, queued_ * kNumbers * sizeof(double));
  here.as<double>()[0] = micro_batch.step;
  here.as<double>()[1] = micro_batch.loss_factor;
  ops.in_order([&] { copy(there, here); });
  nn::MicroBatch read = micro_batch;
  read.step = ops::Scalar(there.slice(0, 1));
  read.loss_factor = ops::Scalar(there.slice(1, 1));
  const std::uint64_t key = draws_ ? micro_batch.first_sequence : 0;
  const bool has_capacity = captured_.size() < kMostCaptured || captured_.contains(key);
  if (!may_capture || !ops.can_capture() || !has_capacity || replica_.calibrates()) {
    replica_.forward_backward(batch, read);
    return;
  }
  Captured& captured = captured_[key];
  if (!captured.step && ++captured.runs >= kCapturedRun) {
    captured.step = capture(ops, [&] { replica_.forward_backward(batch, read); });
  }
  if (captured.step) {
    captured.step->launch();
  } else {
    replica_.forward_backward(batch, read);
  }
}

std::vector<double> MicroBatches::losses() {
  if (replica_.ops().device() == Device{}) return sums_;
  replica_.ops().synchronize();
  for (std::size_t i = 0; i < queued_; ++i) {
    const Tensor losses = returned_[i].tensor(DType::kF32, replica_.losses().shape());
    sums_[i] = sum_in_order(losses.as<const float>());
  }
  return sums_;
}

}  // namespace lockstep::train
