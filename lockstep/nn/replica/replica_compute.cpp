// Forward and backward of a replica's blocks.
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/nn/parameters/seed.h"
#include "lockstep/nn/replica/backward_progress.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/tensor/host_view.h"

namespace lockstep::nn {

void Replica::check(const Batch& batch) const {
  const int ranks = tensor_axis_ != nullptr ? tensor_axis_->size() : 1;
  if (tensor_group().size != ranks) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' was made for a tensor group of {} ranks, but its replica communicates with {}; "
         "set_tensor_axis() has to be given their communicator",
         model_.name(), tensor_group().size, ranks);
  }
  const ContextGroup& context = plan_.setup.context;
  const int context_ranks = context_axis_ != nullptr ? context_axis_->size() : 1;
  const int context_rank = context_axis_ != nullptr ? context_axis_->rank() : 0;
  if (context.size != context_ranks || context.rank != context_rank) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' was planned for rank {} of a context group of {}, but its replica communicates as "
         "rank {} of {}; set_context_axis() has to be given their communicator",
         model_.name(), context.rank, context.size, context_rank, context_ranks);
  }
  const ExpertGroup& experts = plan_.flat.expert_group();
  const int expert_ranks = expert_axis_ != nullptr ? expert_axis_->size() : 1;
  const int expert_rank = expert_axis_ != nullptr ? expert_axis_->rank() : 0;
  // A stage may be without experts.
  if (experts.size > 1 && (experts.size != expert_ranks || experts.rank != expert_rank)) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' was made for rank {} of an expert group of {}, but its replica communicates as rank "
         "{} of {}; set_expert_axis() has to be given their communicator",
         model_.name(), experts.rank, experts.size, expert_rank, expert_ranks);
  }
  const int stages = pipeline_axis_ != nullptr ? pipeline_axis_->stages() : 1;
  if (model_.stages() != stages) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' was cut into {} pipeline stages, but its replica communicates with {}; "
         "set_pipeline_axis() has to be given their communicator",
         model_.name(), model_.stages(), stages);
  }
  const BatchShape& want = plan_.setup.shape;
  const BatchShape& came = batch.shape;
  if (came.batch == want.batch && came.sequence == want.sequence &&
      came.source_sequence == want.source_sequence) {
    return;
  }
  fail(ErrorCode::kInvalidArgument,
       "got a micro-batch of {} sequences of {} tokens (source: {}), but the replica was planned "
       "for {} of {} (source: {}); all micro-batches of a run must have the same shape",
       came.batch, came.sequence, came.source_sequence, want.batch, want.sequence,
       want.source_sequence);
}

Pass Replica::pass(std::size_t block, const Batch& batch, const MicroBatch& micro_batch,
                   const plan::BufferCounts& use, bool training) {
  const BlockViews& views = views_[block];
  const Chunk& chunk = model_.chunk_of(block);
  const bool is_last = chunk.makes_losses && block + 1 == chunk.end;
  return {.ops = ops_,
          .setup = use.slice == plan::BufferCounts::kAllSlices
                       ? views.setup
                       : views.slices[static_cast<std::size_t>(use.slice)],
          .batch = batch,
          .seed = seed_for(micro_batch.seed, views.seed),
          .step = micro_batch.step,
          .first_sequence = micro_batch.first_sequence,
          .training = training,
          .separate_sparse_gradient = false,
          .loss_factor = micro_batch.loss_factor,
          .parameters = version_ == Version::kPrevious ? views.previous : views.parameters,
          .gradients = {},
          .tensors = {},
          .scaling = views.scaling,
          .amax = views.amax,
          .calibrates = calibrates_,
          .in = in_of(block, use, false),
          .out = {},
          .dout = {},
          .din = {},
          .losses = is_last ? losses_of(chunk, use) : Tensor(),
          .logits = {},
          .listener = nullptr,
          .tensor = tensor_axis_,
          .context = context_axis_,
          .experts = expert_axis_};
}

void Replica::forward_block(std::size_t block, const Batch& batch, const MicroBatch& micro_batch,
                            const plan::BufferCounts& use, bool training, const Tensor& logits) {
  tell_before_forward(block);
  Pass pass = this->pass(block, batch, micro_batch, use, training);
  KeptViews& kept = slots_[static_cast<std::size_t>(use.slots)].blocks[block];
  pass.host_counts = host_counts_of(kept, use);
  pass.tensors = use.slice == plan::BufferCounts::kAllSlices
                     ? kept.forward
                     : kept.forward_slices[static_cast<std::size_t>(use.slice)];
  pass.out = out_of(block, use);
  if (block + 1 == model_.size()) pass.logits = logits;
  ops_.use_scratch(views_[block].scratch_forward);
  model_.block(block).forward(pass);
  tell_after_forward(block);
}

void Replica::backward_block(std::size_t block, const Batch& batch, const MicroBatch& micro_batch,
                             const plan::BufferCounts& use, WeightGradients* later) {
  if (listener_ != nullptr) listener_->before_backward(block);
  const BlockViews& views = views_[block];
  Pass pass = this->pass(block, batch, micro_batch, use, true);
  if (version_ == Version::kLatest) pass.parameters = views.parameters_backward;
  pass.in = in_of(block, use, true);
  KeptViews& kept = slots_[static_cast<std::size_t>(use.slots)].blocks[block];
  pass.host_counts = host_counts_of(kept, use);
  pass.tensors = use.slice == plan::BufferCounts::kAllSlices
                     ? kept.backward
                     : kept.backward_slices[static_cast<std::size_t>(use.slice)];
  ops_.use_scratch(views.scratch_backward);
  if (views.setup.recompute == Recompute::kSelective) model_.block(block).restore(pass);
  if (views.setup.recompute == Recompute::kFull) model_.block(block).forward(pass);
  pass.gradients = views.gradients;
  pass.new_gradients = new_gradients_ && overwriting_[block];
  pass.dout = dout_of(block, use);
  pass.din = din_of(block, use);
  pass.separate_sparse_gradient = separate_sparse_gradient_ && block == 0;
  if (later != nullptr && later->has_memory()) pass.weight_gradients = later;
  std::optional<BackwardProgress> progress;
  if (listener_ != nullptr && later == nullptr)
    pass.listener = &progress.emplace(plan_.flat, block, *listener_);
  model_.block(block).backward(pass);
  if (pass.separate_sparse_gradient) sparse_gradient_ = model_.block(block).sparse_gradient(pass);
  if (listener_ == nullptr) return;
  later == nullptr ? listener_->after_backward(block) : listener_->after_backward_input(block);
}

void Replica::forward(std::size_t chunk, const plan::BufferCounts& use, const Batch& whole,
                      const MicroBatch& micro_batch) {
  check(whole);
  const Batch batch = part_of(whole, use);
  if (calibrates_) before_change_of_all();
  current_ = use;
  const Chunk& blocks = model_.chunks().at(chunk);
  if (model_.stages() == 1) {
    const auto rows = model_.block(0).sparse_gradient(pass(0, batch, micro_batch, use, true));
    pending_rows_ = rows ? rows->tokens : Tensor();
  }
  for (std::size_t i = blocks.first; i < blocks.end; ++i) {
    forward_block(i, batch, micro_batch, use, true, {});
  }
}

void Replica::zero_memory_gradient(const Chunk& chunk, const plan::BufferCounts& use) const {
  if (!chunk.makes_losses) return;  // it came from the next stage
  const Tensor memory = memory_gradient_after(chunk.end - 1, use);
  ops_.in_order([&] {
    if (ops::is_given(memory)) fill_zero(memory);
  });
}

// Copies of other stages' blocks are not computed; a strategy reduces their gradients like others.
void Replica::finish_copies(std::size_t chunk) const {
  for (const std::size_t copy : copies_[chunk]) {
    if (listener_ == nullptr) break;
    listener_->before_backward(copy);
    listener_->after_backward(copy);
  }
}

Tensor Replica::losses_of(const Chunk& chunk, const plan::BufferCounts& use) const {
  if (!chunk.makes_losses) return {};
  return rows_of(slots_[static_cast<std::size_t>(use.slots)].losses, use);
}

Tensor Replica::backward(std::size_t chunk, const plan::BufferCounts& use, const Batch& whole,
                         const MicroBatch& micro_batch) {
  current_ = use;
  const Batch batch = part_of(whole, use);
  const Chunk& blocks = model_.chunks().at(chunk);
  // Not before: its bytes were others' in forward.
  zero_memory_gradient(blocks, use);
  for (std::size_t i = blocks.end; i-- > blocks.first;) {
    backward_block(i, batch, micro_batch, use, nullptr);
  }
  finish_copies(chunk);
  new_gradients_ = false;
  calibrates_ = false;
  return losses_of(blocks, use);
}

Tensor Replica::backward_input(std::size_t chunk, const plan::BufferCounts& use, const Batch& batch,
                               const MicroBatch& micro_batch) {
  current_ = use;
  const Chunk& blocks = model_.chunks().at(chunk);
  std::vector<WeightGradients>& weights =
      messages_[chunk].weights.at(static_cast<std::size_t>(use.weight_inputs));
  zero_memory_gradient(blocks, use);
  for (std::size_t i = blocks.end; i-- > blocks.first;) {
    backward_block(i, batch, micro_batch, use, &weights[i - blocks.first]);
  }
  return losses_of(blocks, use);
}

void Replica::backward_weight(std::size_t chunk, const plan::BufferCounts& use) {
  const Chunk& blocks = model_.chunks().at(chunk);
  std::vector<WeightGradients>& weights =
      messages_[chunk].weights.at(static_cast<std::size_t>(use.weight_inputs));
  for (std::size_t i = blocks.end; i-- > blocks.first;) {
    if (listener_ != nullptr) listener_->before_backward_weight(i);
    ops_.use_scratch(views_[i].scratch_backward);
    weights[i - blocks.first].run(ops_);
    if (listener_ != nullptr) listener_->after_backward(i);
  }
  finish_copies(chunk);
}

// Messages of a micro-batch that is in the stages alone.
void Replica::exchange(const Flow& flow, int stage, bool sends) const {
  const bool queues = pipeline_axis_->queues();
  if (!queues) ops_.synchronize();
  for (const Tensor& tensor : {flow.x, flow.memory}) {
    if (!ops::is_given(tensor)) continue;
    if (queues) {
      sends ? pipeline_axis_->queue_send(ops_, tensor, stage)
            : pipeline_axis_->queue_receive(ops_, tensor, stage);
      continue;
    }
    pipeline_axis_->wait(sends ? pipeline_axis_->send(tensor, stage)
                               : pipeline_axis_->receive(tensor, stage));
  }
}

Tensor Replica::forward_backward(const Batch& given, const MicroBatch& micro_batch) {
  check(given);
  const Batch batch = upload(given);
  const plan::BufferCounts use;
  const std::size_t chunks = model_.chunks().size();
  for (std::size_t c = 0; c < chunks; ++c) {
    if (model_.chunks()[c].before != nullptr) exchange(input(c, use), previous_stage(), false);
    forward(c, use, batch, micro_batch);
    if (!model_.chunks()[c].makes_losses) exchange(output(c, use), next_stage(), true);
  }
  Tensor losses;
  for (std::size_t c = chunks; c-- > 0;) {
    const Chunk& chunk = model_.chunks()[c];
    if (!chunk.makes_losses) exchange(output_gradient(c, use), next_stage(), false);
    const Tensor made = backward(c, use, batch, micro_batch);
    if (chunk.makes_losses) losses = made;
    if (chunk.before != nullptr) exchange(input_gradient(c, use), previous_stage(), true);
  }
  return losses;
}

Tensor Replica::evaluate(const Batch& given, const Tensor& logits) {
  check(given);
  const Batch batch = upload(given);
  const plan::BufferCounts use;
  current_ = use;
  bool makes_losses = false;
  for (std::size_t c = 0; c < model_.chunks().size(); ++c) {
    const Chunk& chunk = model_.chunks()[c];
    if (chunk.before != nullptr) exchange(input(c, use), previous_stage(), false);
    for (std::size_t i = chunk.first; i < chunk.end; ++i) {
      forward_block(i, batch, {}, use, false, logits);
    }
    if (!chunk.makes_losses) exchange(output(c, use), next_stage(), true);
    makes_losses = makes_losses || chunk.makes_losses;
  }
  const bool has_losses = ops::is_given(batch.targets) || ops::is_given(batch.outputs);
  return has_losses && makes_losses ? losses() : Tensor();
}

void Replica::upload_ahead(const Batch& batch) {
  if (ops_.device() != Device{}) device_batch_.upload_ahead(batch);
}

Batch Replica::upload(const Batch& batch) {
  return ops_.device() == Device{} ? batch : device_batch_.upload(ops_, batch);
}

double sum_of(const Tensor& losses) {
  if (!ops::is_given(losses)) return 0;
  double sum = 0;
  const HostView view(losses);
  for (const float loss : view.as<float>()) sum += static_cast<double>(loss);
  return sum;
}

std::int64_t count_targets(const Batch& batch) {
  if (!ops::is_given(batch.targets)) return static_cast<std::int64_t>(batch.outputs.elements());
  std::int64_t count = 0;
  for (const std::int32_t target : batch.targets.as<const std::int32_t>()) {
    if (target != ops::kNoTarget) ++count;
  }
  return count;
}

}  // namespace lockstep::nn
