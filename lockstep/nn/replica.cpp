#include "lockstep/nn/replica.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/nn/initial_values.h"
#include "lockstep/nn/seed.h"

namespace lockstep::nn {
namespace {

Tensor slice_if_given(const Tensor& row, FlatRange range) {
  if (!ops::is_given(row)) return {};
  return row.slice(static_cast<std::int64_t>(range.first),
                   static_cast<std::int64_t>(range.elements));
}

void zero_if_given(const Tensor& tensor) {
  if (ops::is_given(tensor)) fill_zero(tensor);
}

void check_made_for(const MemoryPlan& plan, const Model& model, const Ops& ops) {
  if (plan.specs == specs_of(model, plan.setup, ops)) return;
  fail(ErrorCode::kInvalidArgument,
       "this memory plan was made for another model than '{}', or for other operations than those "
       "of '{}'; plan_memory() makes one for them",
       model.name(), ops.name());
}

Tensor outside_row(std::span<std::byte> memory, DType dtype, std::size_t elements) {
  const Shape shape{static_cast<std::int64_t>(elements)};
  if (memory.size() < Tensor::bytes_of(dtype, shape)) {
    fail(ErrorCode::kInvalidArgument,
         "the plan has {} gradients outside, in {} bytes; memory of {} bytes was given", elements,
         Tensor::bytes_of(dtype, shape), memory.size());
  }
  return {memory.data(), dtype, shape};
}

}  // namespace

States States::slice(FlatRange range) const {
  return {slice_if_given(parameters, range), slice_if_given(gradients, range),
          slice_if_given(master, range),     slice_if_given(moment, range),
          slice_if_given(variance, range),   slice_if_given(velocity, range)};
}

Replica::Replica(Model model, MemoryPlan plan, Ops& ops, std::span<std::byte> gradients)
    : model_(std::move(model)), plan_(std::move(plan)), ops_(ops) {
  check_made_for(plan_, model_, ops_);
  arena_ = Arena(plan_.requests, plan_.layout, ops.device());
  make_views(gradients);
}

void Replica::make_views(std::span<std::byte> gradients) {
  const auto view = [&](std::size_t request, DType dtype, const Shape& shape) {
    return request == BlockRequests::kAbsent ? Tensor() : arena_.tensor(request, dtype, shape);
  };
  const auto row = [&](std::size_t request, DType dtype) {
    return view(request, dtype, {static_cast<std::int64_t>(plan_.flat.elements())});
  };
  const Setup& setup = plan_.setup;
  states_.parameters = row(plan_.parameters, setup.dtype);
  states_.gradients = plan_.gradients != BlockRequests::kAbsent
                          ? row(plan_.gradients, setup.gradient)
                          : outside_row(gradients, setup.gradient, plan_.flat.elements());
  states_.master = setup.dtype == DType::kF32 ? states_.parameters : row(plan_.master, DType::kF32);
  states_.moment = row(plan_.moment, DType::kF32);
  states_.variance = row(plan_.variance, DType::kF32);
  states_.velocity = row(plan_.velocity, DType::kF32);
  sums_of_squares_ =
      view(plan_.sums_of_squares, DType::kF64, {static_cast<std::int64_t>(model_.size())});
  losses_ = view(plan_.losses, DType::kF32, {setup.shape.rows()});

  views_.resize(model_.size());
  Tensor memory;
  for (std::size_t i = 0; i < model_.size(); ++i) {
    const BlockSpec& spec = plan_.specs[i];
    const BlockRequests& requests = plan_.blocks[i];
    const Block& block = model_.block(i);
    BlockViews& views = views_[i];
    for (std::size_t p = 0; p < spec.parameters.size(); ++p) {
      const FlatParameter* place = plan_.flat.place(i, p);
      const bool given = place != nullptr;
      views.parameters.push_back(given ? FlatParameters::view(states_.parameters, *place)
                                       : Tensor());
      views.gradients.push_back(given ? FlatParameters::view(states_.gradients, *place) : Tensor());
    }
    for (std::size_t t = 0; t < spec.tensors.size(); ++t) {
      const TensorSpec& tensor = spec.tensors[t];
      views.forward.push_back(view(requests.forward[t], tensor.dtype, tensor.shape));
      views.backward.push_back(view(requests.backward[t], tensor.dtype, tensor.shape));
    }
    const auto bytes = static_cast<std::int64_t>(spec.scratch);
    views.scratch_forward = view(requests.scratch_forward, DType::kU8, {bytes});
    views.scratch_backward = view(requests.scratch_backward, DType::kU8, {bytes});

    if (i > 0) views.in = views_[i - 1].out;
    if (i > 0) views.din = views_[i - 1].dout;
    const Shape output = block.output(setup);
    views.out.x = view(requests.output, setup.dtype, output);
    views.dout.x = view(requests.output_gradient, setup.dtype, output);
    if (i == plan_.memory_maker) {
      memory = view(plan_.memory, setup.dtype, block.memory(setup));
      memory_gradient_ = view(plan_.memory_gradient, setup.dtype, block.memory(setup));
    }
    views.out.memory = memory;
    views.dout.memory = memory_gradient_;
    views.seed = seed_for(0, block.name());
  }
}

void Replica::initialise(std::uint64_t seed, int threads) {
  const bool has_master = states_.master.data() != states_.parameters.data();
  zero_gradients();
  fill_zero(states_.parameters);
  if (has_master) fill_zero(states_.master);
  zero_if_given(states_.moment);
  zero_if_given(states_.variance);
  zero_if_given(states_.velocity);
  for (const FlatParameter& parameter : plan_.flat.all()) {
    const auto fill = [&](const Tensor& row) {
      fill_initial(FlatParameters::view(row, parameter), parameter.initial, seed, parameter.name,
                   threads);
    };
    fill(states_.parameters);
    if (has_master) fill(states_.master);
  }
}

void Replica::zero_gradients() {
  ops_.synchronize();
  fill_zero(states_.gradients);
}

void Replica::round_parameters() {
  if (states_.master.data() == states_.parameters.data()) return;
  ops_.run(ops::Cast{.from = states_.master, .to = states_.parameters});
  ops_.synchronize();
}

void Replica::check(const Batch& batch) const {
  const BatchShape& want = plan_.setup.shape;
  const BatchShape& came = batch.shape;
  if (came.batch == want.batch && came.sequence == want.sequence &&
      came.source_sequence == want.source_sequence) {
    return;
  }
  fail(ErrorCode::kInvalidArgument,
       "a micro-batch of {} sequences of {} tokens (source: {}) came to a replica that was planned "
       "for {} of {} (source: {}); all micro-batches of a run have one shape",
       came.batch, came.sequence, came.source_sequence, want.batch, want.sequence,
       want.source_sequence);
}

Pass Replica::pass(std::size_t block, const Batch& batch, const MicroBatch& micro_batch,
                   bool training) {
  const BlockViews& views = views_[block];
  return {.ops = ops_,
          .setup = plan_.setup,
          .batch = batch,
          .seed = seed_for(micro_batch.seed, views.seed),
          .step = micro_batch.step,
          .first_sequence = micro_batch.first_sequence,
          .training = training,
          .rows_apart = false,
          .loss_factor = micro_batch.loss_factor,
          .parameters = views.parameters,
          .gradients = {},
          .tensors = {},
          .in = views.in,
          .out = {},
          .dout = {},
          .din = {},
          .losses = block + 1 == model_.size() ? losses_ : Tensor(),
          .logits = {}};
}

void Replica::forward(std::size_t block, const Batch& batch, const MicroBatch& micro_batch,
                      bool training, const Tensor& logits) {
  if (listener_ != nullptr) listener_->before_forward(block);
  Pass pass = this->pass(block, batch, micro_batch, training);
  pass.tensors = views_[block].forward;
  pass.out = views_[block].out;
  if (block + 1 == model_.size()) pass.logits = logits;
  ops_.use_scratch(views_[block].scratch_forward);
  model_.block(block).forward(pass);
  if (listener_ != nullptr) listener_->after_forward(block);
}

void Replica::backward(std::size_t block, const Batch& batch, const MicroBatch& micro_batch) {
  if (listener_ != nullptr) listener_->before_backward(block);
  const BlockViews& views = views_[block];
  Pass pass = this->pass(block, batch, micro_batch, true);
  pass.tensors = views.backward;
  ops_.use_scratch(views.scratch_backward);
  if (plan_.setup.recompute == Recompute::kSelective) model_.block(block).restore(pass);
  if (plan_.setup.recompute == Recompute::kFull) model_.block(block).forward(pass);
  pass.gradients = views.gradients;
  pass.dout = views.dout;
  pass.din = views.din;
  pass.rows_apart = rows_apart_ && block == 0;
  model_.block(block).backward(pass);
  if (pass.rows_apart) row_gradient_ = model_.block(block).row_gradient(pass);
  if (listener_ != nullptr) listener_->after_backward(block);
}

Tensor Replica::forward_backward(const Batch& batch, const MicroBatch& micro_batch) {
  check(batch);
  for (std::size_t i = 0; i < model_.size(); ++i) forward(i, batch, micro_batch, true, {});
  if (ops::is_given(memory_gradient_)) {
    ops_.synchronize();  // its bytes were others' before
    fill_zero(memory_gradient_);
  }
  for (std::size_t i = model_.size(); i-- > 0;) backward(i, batch, micro_batch);
  return losses_;
}

Tensor Replica::evaluate(const Batch& batch, const Tensor& logits) {
  check(batch);
  for (std::size_t i = 0; i < model_.size(); ++i) forward(i, batch, {}, false, logits);
  const bool has_losses = ops::is_given(batch.targets) || ops::is_given(batch.outputs);
  return has_losses ? losses_ : Tensor();
}

Tensor Replica::parameter(std::string_view name) const {
  return FlatParameters::view(states_.parameters, plan_.flat.find(name));
}

Tensor Replica::gradient(std::string_view name) const {
  return FlatParameters::view(states_.gradients, plan_.flat.find(name));
}

double sum_of(const Tensor& losses) {
  double sum = 0;
  for (const float loss : losses.as<const float>()) sum += static_cast<double>(loss);
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
