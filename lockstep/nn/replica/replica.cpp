#include "lockstep/nn/replica/replica.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/nn/parameters/initial_values.h"
#include "lockstep/nn/parameters/seed.h"
#include "lockstep/nn/replica/backward_progress.h"
#include "lockstep/nn/replica/state_stream.h"
#include "lockstep/tensor/host_view.h"

namespace lockstep::nn {
namespace {

Tensor slice_if_given(const Tensor& buffer, FlatRange range) {
  if (!ops::is_given(buffer)) return {};
  return buffer.slice(static_cast<std::int64_t>(range.first),
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

// Where a parameter lies in its block's range of a flat buffer.
FlatParameter within(const FlatParameter& parameter, FlatRange block) {
  FlatParameter moved = parameter;
  moved.offset -= block.first;
  return moved;
}

}  // namespace

States States::slice(FlatRange range) const {
  return {slice_if_given(parameters, range),    slice_if_given(gradients, range),
          slice_if_given(master, range),        slice_if_given(first_moment, range),
          slice_if_given(second_moment, range), slice_if_given(velocity, range)};
}

Replica::Replica(Model model, MemoryPlan plan, Ops& ops, const ReplicaMemory& memory)
    : model_(std::move(model)), plan_(std::move(plan)), ops_(ops), symmetric_(memory.symmetric) {
  check_made_for(plan_, model_, ops_);
  if (symmetric_.size() < plan_.symmetric_bytes()) {
    fail(ErrorCode::kInvalidArgument,
         "the plan has {} bytes of symmetric memory; {} bytes were given", plan_.symmetric_bytes(),
         symmetric_.size());
  }
  symmetric_claim_ = MemoryClaim(memory.device, plan_.symmetric_layout.bytes);
  host_symmetric_claim_ = MemoryClaim(memory.host, plan_.host_symmetric_layout.bytes);
  arena_ = Arena(plan_.requests, plan_.layout, ops.device(), memory.device);
  host_arena_ = Arena(plan_.host_requests, plan_.host_layout, Device{}, memory.host);
  if (ops.device() != Device{}) {
    device_batch_ = DeviceBatch(plan_.setup.shape, model_.block(0).features(), ops.device());
  }
  for (const FlatParameter& parameter : plan_.flat.all()) {
    if (!parameter.shard.is_replicated()) tensor_group_ = parameter.shard.group;
  }
  make_states();
  make_files(memory.file);
  make_views();
}

void Replica::make_files(const io::TierFileOptions& options) {
  make_state_file(options);
  const auto make = [&](const char* what, const io::StagedFile::Layout& layout) {
    io::TierFileOptions named = options;
    named.what = what;
    return layout.items.empty() ? nullptr : std::make_unique<io::StagedFile>(named, layout);
  };
  gradient_file_ = make("gradients", plan_.gradient_file);
  activation_file_ = make("what blocks keep for backward", plan_.activation_file);
}

void Replica::make_state_file(io::TierFileOptions options) {
  if (plan_.state_file.buffers.empty()) return;
  if (plan_.setup.dtype != DType::kF32) filed_states_.push_back(&States::master);
  if (plan_.optimizer == OptimizerState::kVelocity) filed_states_.push_back(&States::velocity);
  if (plan_.optimizer == OptimizerState::kMoments) {
    filed_states_.insert(filed_states_.end(), {&States::first_moment, &States::second_moment});
  }
  if (plan_.tiers.parameters == Tier::kFile) filed_states_.push_back(&States::parameters);
  options.what = "the optimizer's states";
  state_file_ = std::make_unique<FlatFile>(options, plan_.state_file);
}

io::TierTraffic Replica::filed_traffic() const {
  io::TierTraffic all;
  if (state_file_) all = all + state_file_->file().traffic();
  if (gradient_file_) all = all + gradient_file_->file().traffic();
  if (activation_file_) all = all + activation_file_->file().traffic();
  return all;
}

Tensor Replica::view(std::size_t request, DType dtype, const Shape& shape) const {
  return request == BlockRequests::kAbsent ? Tensor() : arena_.tensor(request, dtype, shape);
}

// Buffers in a file have no address in memory.
Tensor Replica::view(BufferPlace place, DType dtype, const Shape& shape) const {
  if (place.request == BlockRequests::kAbsent || place.tier == Tier::kFile) return {};
  const bool on_host = place.tier == Tier::kHost;
  if (!place.symmetric) return (on_host ? host_arena_ : arena_).tensor(place.request, dtype, shape);
  const std::size_t offset =
      on_host ? plan_.symmetric_layout.bytes + plan_.host_symmetric_layout.offsets[place.request]
              : plan_.symmetric_layout.offsets[place.request];
  return {symmetric_.data() + offset, dtype, shape, on_host ? Device{} : ops_.device()};
}

void Replica::make_states() {
  const Setup& setup = plan_.setup;
  const Sharding& sharding = plan_.sharding;
  const auto buffer = [&](auto place, DType dtype, bool is_sharded) {
    const std::size_t elements = is_sharded ? plan_.shards.elements() : plan_.flat.elements();
    return view(place, dtype, {static_cast<std::int64_t>(elements)});
  };
  states_.parameters = buffer(plan_.parameters, setup.dtype, sharding.parameters);
  states_.gradients = buffer(plan_.gradients, setup.gradient, sharding.gradients);
  states_.master = setup.dtype == DType::kF32
                       ? states_.parameters
                       : buffer(plan_.master, DType::kF32, sharding.optimizer);
  states_.first_moment = buffer(plan_.first_moment, DType::kF32, sharding.optimizer);
  states_.second_moment = buffer(plan_.second_moment, DType::kF32, sharding.optimizer);
  states_.velocity = buffer(plan_.velocity, DType::kF32, sharding.optimizer);
  const BufferPlace& sums = plan_.sums_of_squares;
  const auto& requests = sums.tier == Tier::kHost ? plan_.host_requests : plan_.requests;
  sums_of_squares_ =
      view(sums, DType::kF64,
           {static_cast<std::int64_t>(requests[sums.request].bytes / sizeof(double))});
  losses_ = view(plan_.losses, DType::kF32, {setup.shape.tokens()});
  scaling_ = view(plan_.scaling, DType::kF32, {plan_.scaled_tensors(), ops::kScaling});
  amax_ = view(plan_.amax, DType::kF32, {plan_.scaled_tensors()});
}

FlatRange Replica::my_range(std::size_t block) const {
  return plan_.sharding.any() ? plan_.shards.mine(block) : plan_.flat.range(block);
}

States Replica::mine(std::size_t block) const {
  const Sharding& sharding = plan_.sharding;
  const FlatRange in_buffer = my_range(block);
  const auto part = [&](const Tensor& buffer, bool is_sharded) {
    return slice_if_given(buffer, is_sharded ? plan_.shards.mine_among_parts(block) : in_buffer);
  };
  const bool has_master = plan_.setup.dtype != DType::kF32;
  return {.parameters = part(states_.parameters, sharding.parameters),
          .gradients = part(states_.gradients, sharding.gradients),
          .master = part(states_.master, has_master ? sharding.optimizer : sharding.parameters),
          .first_moment = part(states_.first_moment, sharding.optimizer),
          .second_moment = part(states_.second_moment, sharding.optimizer),
          .velocity = part(states_.velocity, sharding.optimizer)};
}

Tensor Replica::gathered(std::size_t gather) const {
  const std::size_t elements = plan_.flat.range(plan_.gathers.at(gather).unit).elements;
  return view(plan_.gathered.at(gather), plan_.setup.dtype, {static_cast<std::int64_t>(elements)});
}

Tensor Replica::gradients_of(std::size_t block) const {
  const FlatRange range = plan_.flat.range(block);
  return plan_.sharding.gradients ? gradients_written(block)
                                  : slice_if_given(states_.gradients, range);
}

Tensor Replica::gradients_written(std::size_t block) const {
  if (!plan_.has_gradients_in_flight()) return gradients_of(block);
  return view(plan_.gradients_in_flight.at(block), plan_.setup.gradient,
              {static_cast<std::int64_t>(plan_.flat.range(block).elements)});
}

Tensor Replica::arriving_gradients(std::size_t block) const {
  return view(plan_.arriving_gradients, plan_.setup.gradient,
              {static_cast<std::int64_t>(plan_.shards.mine(block).elements)});
}

Replica::AbsenceViews Replica::absence(std::size_t index) const {
  const Absence& absence = plan_.absences.at(index);
  return {.before = arena_.whole(absence.before),
          .away = activation_file_ ? Tensor() : host_arena_.whole(absence.away),
          .after = arena_.whole(absence.after)};
}

Tensor Replica::staged_gradients() const {
  return view(plan_.staged_gradients, plan_.setup.gradient,
              {2, static_cast<std::int64_t>(plan_.staged_elements)});
}

Tensor Replica::staged_parameters() const {
  return view(plan_.staged_parameters, plan_.setup.dtype,
              {2, static_cast<std::int64_t>(plan_.staged_elements)});
}

Tensor Replica::parameter_at(int step, const FlatParameter* place) const {
  if (place == nullptr) return {};
  if (!plan_.gathers_parameters()) return FlatParameters::view(states_.parameters, *place);
  for (std::size_t i = 0; i < plan_.gathers.size(); ++i) {
    const Gather& gather = plan_.gathers[i];
    if (gather.unit != place->block || step < gather.needed || step > gather.last) continue;
    return FlatParameters::view(gathered(i), within(*place, plan_.flat.range(gather.unit)));
  }
  return {};  // this step does not read it
}

Tensor Replica::gradient_at(const FlatParameter* place) const {
  if (place == nullptr) return {};
  return FlatParameters::view(gradients_written(place->block),
                              within(*place, plan_.flat.range(place->block)));
}

void Replica::make_views() {
  const Setup& setup = plan_.setup;
  const int steps = 2 * static_cast<int>(model_.size());
  views_.resize(model_.size());
  Tensor memory;
  std::int64_t scaled = 0;
  for (std::size_t i = 0; i < model_.size(); ++i) {
    const BlockSpec& spec = plan_.specs[i];
    const BlockRequests& requests = plan_.blocks[i];
    const Block& block = model_.block(i);
    BlockViews& views = views_[i];
    for (std::size_t p = 0; p < spec.parameters.size(); ++p) {
      const FlatParameter* place = plan_.flat.place(i, p);
      const int forward = static_cast<int>(i);
      views.parameters.push_back(parameter_at(forward, place));
      views.parameters_backward.push_back(parameter_at(steps - 1 - forward, place));
      views.gradients.push_back(gradient_at(place));
    }
    for (std::size_t t = 0; t < spec.tensors.size(); ++t) {
      const TensorSpec& tensor = spec.tensors[t];
      views.forward.push_back(view(requests.forward[t], tensor.dtype, tensor.shape));
      views.backward.push_back(view(requests.backward[t], tensor.dtype, tensor.shape));
    }
    if (const auto count = static_cast<std::int64_t>(spec.scaled.size()); count > 0) {
      views.scaling = scaling_.slice(scaled, count);
      views.amax = amax_.slice(scaled, count);
      scaled += count;
    }
    const auto bytes = static_cast<std::int64_t>(spec.scratch);
    views.scratch_forward = view(requests.scratch_forward, DType::kU8, {bytes});
    views.scratch_backward = view(requests.scratch_backward, DType::kU8, {bytes});

    if (i > 0) views.in = views_[i - 1].out;
    if (i > 0) views.din = views_[i - 1].dout;
    const Shape output = block.output(setup);
    views.in_backward = views.in;
    if (i > 0) {
      views.in_backward.x =
          view(plan_.blocks[i - 1].output_backward, setup.dtype, model_.block(i - 1).output(setup));
    }
    views.out.x = view(requests.output, setup.dtype, output);
    views.dout.x = view(requests.output_gradient, setup.dtype, output);
    if (i == plan_.memory_maker) {
      memory = view(plan_.memory, setup.dtype, block.memory(setup));
      memory_gradient_ = view(plan_.memory_gradient, setup.dtype, block.memory(setup));
    }
    views.out.memory = memory;
    views.dout.memory = memory_gradient_;
    views.setup = setup.of(i);
    views.seed = seed_for(0, block.draws_as());
  }
}

void Replica::initialise(std::uint64_t seed, int threads) {
  const bool has_master = plan_.setup.dtype != DType::kF32;
  zero_gradients();
  reset_scaling();
  zero_if_given(states_.parameters);
  StateStream stream(*this, StateAccess::kWrite);
  while (stream.next()) {
    const States states = stream.states();
    zero_if_given(states.master);
    zero_if_given(states.parameters);
    zero_if_given(states.first_moment);
    zero_if_given(states.second_moment);
    zero_if_given(states.velocity);
    for_parameters_in(
        plan_.flat, stream.block(), stream.range(),
        [&](const FlatParameter& parameter, std::size_t first, FlatRange within) {
          const States part = states.slice(within);
          for (const Tensor& values : {part.parameters, has_master ? part.master : Tensor()}) {
            if (!ops::is_given(values)) continue;
            for_runs(parameter.shape, parameter.shard, first, within.elements,
                     [&](const ShardRun& run) {
                       fill_initial(values.slice(static_cast<std::int64_t>(run.local - first),
                                                 static_cast<std::int64_t>(run.elements)),
                                    parameter.initial, seed, parameter.name, threads, run.logical);
                     });
          }
        });
  }
}

// No scale is known, and each row knows the range of its format.
void Replica::reset_scaling() {
  if (!ops::is_given(scaling_)) return;
  std::vector<float> rows(scaling_.elements());
  auto row = rows.begin();
  for (const BlockSpec& spec : plan_.specs) {
    for (const Float8 format : spec.scaled) {
      row[ops::kLargest] = largest(format);
      row += ops::kScaling;
    }
  }
  copy(scaling_, tensor_of(std::span(rows)));
  fill_zero(amax_);
  calibrates_ = true;
}

void Replica::set_scaling(const Tensor& scaling) {
  copy(scaling_, scaling);
  fill_zero(amax_);
  // A scale that is not 0 was found by a micro-batch, which finds all of them.
  calibrates_ = true;
  const auto numbers = scaling.as<const float>();
  for (std::size_t row = 0; row < numbers.size(); row += ops::kScaling) {
    if (numbers[row + ops::kScale] != 0) calibrates_ = false;
  }
}

void Replica::update_scaling() const {
  if (ops::is_given(scaling_)) ops_.run(ops::UpdateScaling{.scaling = scaling_, .amax = amax_});
}

void Replica::zero_gradients() {
  ops_.in_order([this] { zero_if_given(states_.gradients); });
}

void Replica::round_parameters() {
  if (plan_.setup.dtype == DType::kF32) return;
  StateStream stream(*this, StateAccess::kRound);
  while (stream.next()) {
    const States states = stream.states();
    if (!ops::is_given(states.master)) continue;
    ops_.run(ops::Cast{.from = states.master, .to = states.parameters});
    if (state_file_) ops_.synchronize();
  }
  ops_.synchronize();
}

void Replica::check(const Batch& batch) const {
  const int ranks = tensor_axis_ != nullptr ? tensor_axis_->size() : 1;
  if (tensor_group_.size != ranks) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' was made for a tensor group of {} ranks, but its replica communicates with {}; "
         "set_tensor_axis() has to be given their communicator",
         model_.name(), tensor_group_.size, ranks);
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
                   bool training) {
  const BlockViews& views = views_[block];
  return {.ops = ops_,
          .setup = views.setup,
          .batch = batch,
          .seed = seed_for(micro_batch.seed, views.seed),
          .step = micro_batch.step,
          .first_sequence = micro_batch.first_sequence,
          .training = training,
          .separate_sparse_gradient = false,
          .loss_factor = micro_batch.loss_factor,
          .parameters = views.parameters,
          .gradients = {},
          .tensors = {},
          .scaling = views.scaling,
          .amax = views.amax,
          .calibrates = calibrates_,
          .in = views.in,
          .out = {},
          .dout = {},
          .din = {},
          .losses = block + 1 == model_.size() ? losses_ : Tensor(),
          .logits = {},
          .listener = nullptr,
          .tensor = tensor_axis_};
}

void Replica::forward(std::size_t block, const Batch& batch, const MicroBatch& micro_batch,
                      bool training, const Tensor& logits) {
  tell_before_forward(block);
  Pass pass = this->pass(block, batch, micro_batch, training);
  pass.tensors = views_[block].forward;
  pass.out = views_[block].out;
  if (block + 1 == model_.size()) pass.logits = logits;
  ops_.use_scratch(views_[block].scratch_forward);
  model_.block(block).forward(pass);
  tell_after_forward(block);
}

void Replica::backward(std::size_t block, const Batch& batch, const MicroBatch& micro_batch) {
  if (listener_ != nullptr) listener_->before_backward(block);
  const BlockViews& views = views_[block];
  Pass pass = this->pass(block, batch, micro_batch, true);
  pass.parameters = views.parameters_backward;
  pass.in = views.in_backward;
  pass.tensors = views.backward;
  ops_.use_scratch(views.scratch_backward);
  if (views.setup.recompute == Recompute::kSelective) model_.block(block).restore(pass);
  if (views.setup.recompute == Recompute::kFull) model_.block(block).forward(pass);
  pass.gradients = views.gradients;
  pass.dout = views.dout;
  pass.din = views.din;
  pass.separate_sparse_gradient = separate_sparse_gradient_ && block == 0;
  std::optional<BackwardProgress> progress;
  if (listener_ != nullptr) pass.listener = &progress.emplace(plan_.flat, block, *listener_);
  model_.block(block).backward(pass);
  if (pass.separate_sparse_gradient) sparse_gradient_ = model_.block(block).sparse_gradient(pass);
  if (listener_ != nullptr) listener_->after_backward(block);
}

Tensor Replica::forward_backward(const Batch& given, const MicroBatch& micro_batch) {
  check(given);
  if (calibrates_) before_change_of_all();
  const Batch batch = upload(given);
  const auto rows = model_.block(0).sparse_gradient(pass(0, batch, micro_batch, true));
  pending_rows_ = rows ? rows->tokens : Tensor();
  for (std::size_t i = 0; i < model_.size(); ++i) forward(i, batch, micro_batch, true, {});
  // Not before: its bytes were others' in forward.
  ops_.in_order([this] { zero_if_given(memory_gradient_); });
  for (std::size_t i = model_.size(); i-- > 0;) backward(i, batch, micro_batch);
  calibrates_ = false;
  return losses_;
}

Tensor Replica::evaluate(const Batch& given, const Tensor& logits) {
  check(given);
  const Batch batch = upload(given);
  for (std::size_t i = 0; i < model_.size(); ++i) forward(i, batch, {}, false, logits);
  const bool has_losses = ops::is_given(batch.targets) || ops::is_given(batch.outputs);
  return has_losses ? losses_ : Tensor();
}

Batch Replica::upload(const Batch& batch) {
  return ops_.device() == Device{} ? batch : device_batch_.upload(ops_, batch);
}

StatePart Replica::part_of(const FlatParameter& parameter) const {
  const FlatRange part = my_range(parameter.block);
  const std::size_t first = std::max(parameter.offset, part.first);
  const std::size_t end = std::min(parameter.offset + parameter.shape.elements(), part.end());
  if (first >= end) return {};
  return {.first = first - parameter.offset,
          .states = mine(parameter.block).slice({first - part.first, end - first})};
}

Tensor Replica::parameter(std::string_view name) const {
  return FlatParameters::view(states_.parameters, plan_.flat.find(name));
}

Tensor Replica::gradient(std::string_view name) const {
  return FlatParameters::view(states_.gradients, plan_.flat.find(name));
}

void Replica::before_change_of_all() const {
  for (std::size_t block = 0; block < model_.size(); ++block) before_change(block);
}

double sum_of(const Tensor& losses) {
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
