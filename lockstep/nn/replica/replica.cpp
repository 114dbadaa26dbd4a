#include "lockstep/nn/replica/replica.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/nn/parameters/initial_values.h"
#include "lockstep/nn/replica/state_stream.h"

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

}  // namespace

States States::slice(FlatRange range) const {
  return {slice_if_given(parameters, range),    slice_if_given(gradients, range),
          slice_if_given(master, range),        slice_if_given(first_moment, range),
          slice_if_given(second_moment, range), slice_if_given(velocity, range),
          slice_if_given(previous, range)};
}

Replica::Replica(Model model, MemoryPlan plan, Ops& ops, const ReplicaMemory& memory)
    : model_(std::move(model)),
      plan_(std::move(plan)),
      ops_(ops),
      symmetric_(memory.symmetric),
      host_symmetric_(memory.host_symmetric),
      reading_(std::make_unique<std::shared_mutex>()) {
  check_made_for(plan_, model_, ops_);
  take_symmetric();
  symmetric_claim_ = MemoryClaim(memory.device, plan_.symmetric_layout.bytes);
  host_symmetric_claim_ = MemoryClaim(memory.host, plan_.host_symmetric_layout.bytes);
  arena_ = Arena(plan_.requests, plan_.layout, ops.device(), memory.device);
  host_arena_ = Arena(plan_.host_requests, plan_.host_layout, Device{}, memory.host);
  if (ops.device() != Device{} && plan_.tiers.any()) {
    if (host_arena_.bytes() > 0) pinned_ = PinnedRange(host_arena_.data(), host_arena_.bytes());
    if (!host_symmetric_.empty()) {
      pinned_symmetric_ = PinnedRange(host_symmetric_.data(), host_symmetric_.size());
    }
    host_ops_ = make_cpu_ops(CpuSet::of_this_thread().count());
  }
  if (ops.device() != Device{}) {
    device_batch_ = DeviceBatch(plan_.setup, model_.block(0).features(), ops.device());
  }
  make_states();
  make_files(memory.file);
  make_views();
  find_overwriting_blocks();
}

// The CPU's is one buffer.
void Replica::take_symmetric() {
  const std::size_t on_host = plan_.host_symmetric_layout.bytes;
  const std::size_t given = symmetric_.size() + host_symmetric_.size();
  const bool is_one = host_symmetric_.empty() && ops_.device() == Device{};
  if (is_one && given >= plan_.symmetric_bytes()) {
    host_symmetric_ = symmetric_.subspan(plan_.symmetric_layout.bytes);
  }
  if (symmetric_.size() >= plan_.symmetric_layout.bytes && host_symmetric_.size() >= on_host) {
    return;
  }
  fail(ErrorCode::kInvalidArgument,
       "the plan has {} bytes of symmetric memory; {} bytes were given", plan_.symmetric_bytes(),
       given);
}

void Replica::make_files(const io::TierFileOptions& options) {
  make_state_file(options);
  const auto make = [&](const char* what, const io::StagedFile::Layout& layout) {
    io::TierFileOptions named = options;
    named.what = what;
    return layout.items.empty() ? nullptr
                                : std::make_unique<io::StagedFile>(named, layout, ops_.device());
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
  if (on_host) {
    const std::size_t offset = plan_.host_symmetric_layout.offsets[place.request];
    return {host_symmetric_.data() + offset, dtype, shape, Device{}};
  }
  const std::size_t offset = plan_.symmetric_layout.offsets[place.request];
  return {symmetric_.data() + offset, dtype, shape, ops_.device()};
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
  delayed_gradients_ = buffer(plan_.delayed_gradients, setup.gradient, false);
  next_parameters_ = buffer(plan_.next_parameters, setup.dtype, false);
  states_.previous = buffer(plan_.previous_parameters, setup.dtype, false);
  const BufferPlace& sums = plan_.sums_of_squares;
  const auto& requests = sums.tier == Tier::kHost ? plan_.host_requests : plan_.requests;
  sums_of_squares_ =
      view(sums, DType::kF64,
           {static_cast<std::int64_t>(requests[sums.request].bytes / sizeof(double))});
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
          .velocity = part(states_.velocity, sharding.optimizer),
          .previous = part(states_.previous, sharding.parameters)};
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

void Replica::take_gradients() { std::swap(states_.gradients, delayed_gradients_); }

// An update writes all of the other buffer.
void Replica::take_parameters() { std::swap(states_.parameters, next_parameters_); }

void Replica::keep_version(std::size_t block) {
  const States states = mine(block);
  copy(states.previous, states.parameters);
}

void Replica::keep_version() {
  before_change_of_all();
  for (std::size_t block = 0; block < plan_.flat.blocks(); ++block) keep_version(block);
  has_previous_ = true;
}

void Replica::keep_gradients() { copy(delayed_gradients_, states_.gradients); }

void Replica::initialise(std::uint64_t seed, int threads) {
  has_previous_ = false;
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

bool Replica::reads_back() const {
  return std::ranges::any_of(plan_.specs, [](const BlockSpec& spec) { return spec.reads_back; });
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
  new_gradients_ = false;
  ops_.in_order([this] { zero_if_given(states_.gradients); });
}

// Blocks that overwrite the gradients of all parameters that they own, which no other block uses.
// Stages of a pipeline compute several micro-batches at a time, and none of them is surely the
// first.
void Replica::find_overwriting_blocks() {
  const bool is_whole = ops::is_given(states_.gradients) && !plan_.sharding.gradients &&
                        (!plan_.tiers.delayed_update || plan_.tiers.gradients == Tier::kDevice);
  overwriting_.assign(model_.size(), is_whole && model_.stages() == 1 &&
                                         model_.chunks().size() == 1 && plan_.setup.slices.empty());
  for (std::size_t block = 0; block < model_.size(); ++block) {
    const std::vector<ParameterSpec>& parameters = plan_.specs[block].parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const FlatParameter* place = plan_.flat.place(block, i);
      if (place == nullptr) continue;
      const bool is_tied = place->block != block;
      if (is_tied || !parameters[i].overwrites) overwriting_[place->block] = false;
      if (is_tied && parameters[i].overwrites) overwriting_[block] = false;
    }
  }
}

void Replica::begin_gradients() {
  ops_.in_order([this] {
    for (std::size_t block = 0; block < model_.size(); ++block) {
      if (!overwriting_[block]) {
        zero_if_given(slice_if_given(states_.gradients, plan_.flat.range(block)));
      }
    }
  });
  new_gradients_ = true;
}

// A master copy on the host, beside a GPU.
void Replica::round_on_host(const States& states) const {
  const bool apart = states.parameters.device() != Device{};
  const Buffer rounded(apart ? states.parameters.bytes() : 0);
  const Tensor to = apart ? rounded.tensor(states.parameters.dtype(), states.parameters.shape())
                          : states.parameters;
  host_ops().run(ops::Cast{.from = states.master, .to = to});
  host_ops().synchronize();
  if (apart) copy(states.parameters, to);
}

void Replica::round_parameters() {
  if (plan_.setup.dtype == DType::kF32) return;
  StateStream stream(*this, StateAccess::kRound);
  while (stream.next()) {
    const States states = stream.states();
    if (!ops::is_given(states.master)) continue;
    if (states.master.device() != ops_.device()) {
      round_on_host(states);
      continue;
    }
    ops_.run(ops::Cast{.from = states.master, .to = in_place(states.parameters)});
    if (state_file_) ops_.synchronize();
  }
  ops_.synchronize();
}

Tensor Replica::parameter(std::string_view name) const {
  return FlatParameters::view(states_.parameters, plan_.flat.find(name));
}

Tensor Replica::gradient(std::string_view name) const {
  return FlatParameters::view(states_.gradients, plan_.flat.find(name));
}

void Replica::set_reader(StateReader* reader) {
  const std::lock_guard lock(*reading_);
  reader_ = reader;
}

void Replica::before_change(std::size_t block) const {
  const std::shared_lock lock(*reading_);
  if (reader_ != nullptr) reader_->before_change(block);
}

void Replica::before_change_of_all() const {
  for (std::size_t block = 0; block < model_.size(); ++block) before_change(block);
}

}  // namespace lockstep::nn
