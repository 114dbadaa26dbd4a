#include "lockstep/nn/memory/memory_plan.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/nn/device_batch.h"

namespace lockstep::nn {
namespace {

constexpr std::size_t kAbsent = BlockRequests::kAbsent;
constexpr const char* kWorkspace = "workspace";
constexpr const char* kGradients = "gradients";
constexpr int kSumsOfParts = 1024;
// Elements of a staging chunk between tiers: enough to hide the start-up cost of a copy.
constexpr std::size_t kStagedElements = std::size_t{1} << 18;

class Planner {
 public:
  Planner(const Model& model, MemoryPlan& plan)
      : model_(model), plan_(plan), blocks_(static_cast<int>(model.size())) {}

  // Adds requests in the order in which reports list their classes.
  void run() {
    add_states();
    add_tensors("activations", {Life::kKept, Life::kRestored});
    add_hand_over();
    add_file("what blocks keep", "activations", plan_.activation_file);
    add_tensors(kWorkspace, {Life::kForward, Life::kBackward});
    add_scratch();
  }

 private:
  int forward_of(int block) const { return block; }
  int backward_of(int block) const { return 2 * blocks_ - 1 - block; }
  int optimizer_step() const { return 2 * blocks_; }

  // Nothing needs no request.
  std::size_t add(std::string name, std::string group, std::size_t bytes, int first, int last) {
    if (bytes == 0) return kAbsent;
    plan_.requests.push_back({std::move(name), std::move(group), bytes, first, last});
    return plan_.requests.size() - 1;
  }

  std::vector<Request>& requests_of(Tier tier, bool symmetric) {
    if (tier == Tier::kFile) return plan_.file_requests;
    if (tier == Tier::kHost) return symmetric ? plan_.host_symmetric_requests : plan_.host_requests;
    return symmetric ? plan_.symmetric_requests : plan_.requests;
  }

  BufferPlace add(Tier tier, bool symmetric, Request request) {
    if (request.bytes == 0) return {};
    std::vector<Request>& requests = requests_of(tier, symmetric);
    requests.push_back(std::move(request));
    return {requests.size() - 1, symmetric && tier != Tier::kFile, tier};
  }

  BufferPlace add_buffer(const char* name, const char* group, DType dtype, bool is_sharded,
                         Tier tier, bool symmetric = false) {
    const std::size_t elements = is_sharded ? plan_.shards.elements() : plan_.flat.elements();
    return add(tier, symmetric,
               {.name = name,
                .group = group,
                .bytes = Tensor::bytes_of(dtype, {static_cast<std::int64_t>(elements)}),
                .first_step = 0,
                .last_step = optimizer_step()});
  }

  void add_states() {
    const Setup& setup = plan_.setup;
    const Sharding& sharding = plan_.sharding;
    const Tiers& tiers = plan_.tiers;
    if (tiers.parameters != Tier::kFile) {
      plan_.parameters = add_buffer("parameters", "parameters", setup.dtype, sharding.parameters,
                                    tiers.parameters, sharding.any());
    }
    if (plan_.gathers_parameters()) add_gathered();
    if (tiers.gradients == Tier::kFile) {
      add_gradient_file();
    } else {
      plan_.gradients = add_buffer(kGradients, kGradients, setup.gradient, sharding.gradients,
                                   tiers.gradients, sharding.symmetric && !sharding.gradients);
    }
    if (plan_.has_gradients_in_flight()) add_in_flight();
    add_optimizer();
    // Workers with shards exchange more sums than one per block.
    const std::int64_t sums = sharding.any() ? std::max(blocks_, kSumsOfParts) : blocks_;
    // Gradients in a file are read where the optimizer computes.
    const Tier tier = tiers.gradients == Tier::kFile ? tiers.update() : tiers.gradients;
    plan_.sums_of_squares = add(tier, false,
                                {.name = "sums of squares",
                                 .group = "optimizer",
                                 .bytes = Tensor::bytes_of(DType::kF64, {sums}),
                                 .first_step = 0,
                                 .last_step = optimizer_step()});
    add_scaling();
    add_staging();
  }

  void add_scaling() {
    const std::int64_t tensors = plan_.scaled_tensors();
    const auto add_f32 = [&](const char* name, std::int64_t elements) {
      return add(Tier::kDevice, false,
                 {.name = name,
                  .group = "optimizer",
                  .bytes = Tensor::bytes_of(DType::kF32, {elements}),
                  .first_step = 0,
                  .last_step = optimizer_step()});
    };
    plan_.scaling = add_f32("scaling", tensors * ops::kScaling);
    plan_.amax = add_f32("amax", tensors);
  }

  void add_optimizer() {
    const bool in_file = plan_.tiers.optimizer == Tier::kFile;
    std::vector<DType> buffers;
    const auto add_state = [&](const char* name) {
      buffers.push_back(DType::kF32);
      if (in_file) return BufferPlace();
      return add_buffer(name, "optimizer", DType::kF32, plan_.sharding.optimizer,
                        plan_.tiers.optimizer);
    };
    if (plan_.setup.dtype != DType::kF32) plan_.master = add_state("master");
    if (plan_.optimizer == OptimizerState::kVelocity) plan_.velocity = add_state("velocity");
    if (plan_.optimizer == OptimizerState::kMoments) {
      plan_.first_moment = add_state("moment");
      plan_.second_moment = add_state("variance");
    }
    if (plan_.tiers.parameters == Tier::kFile) buffers.push_back(plan_.setup.dtype);
    if (in_file && !buffers.empty()) add_state_file(std::move(buffers));
  }

  // Staging is memory of its own, aligned for direct transfers.
  void add_file(const char* name, const char* group, std::size_t file, std::size_t staging) {
    const Request whole{.name = name,
                        .group = group,
                        .bytes = file,
                        .first_step = 0,
                        .last_step = optimizer_step()};
    add(Tier::kFile, false, whole);
    if (staging == 0) return;
    plan_.host_outside.push_back(whole);
    plan_.host_outside.back().group = "staging";
    plan_.host_outside.back().bytes = staging;
  }
  void add_file(const char* name, const char* group, io::StagedFile::Layout& file) {
    file.overlaps = plan_.tiers.overlaps;
    add_file(name, group, file.file_bytes(), file.staging_bytes());
  }

  // Of the shards that arrive from all workers, one at a time is in flight to the file.
  void add_gradient_file() {
    const DType dtype = plan_.setup.gradient;
    std::size_t most = 0;
    for (std::size_t block = 0; block < model_.size(); ++block) {
      const FlatRange part =
          plan_.sharding.gradients ? plan_.shards.mine(block) : plan_.flat.range(block);
      plan_.gradient_file.items.push_back(part.elements * size_of(dtype));
      most = std::max(most, part.elements);
    }
    add_file(kGradients, kGradients, plan_.gradient_file);
    if (!plan_.sharding.gradients) return;
    plan_.arriving_gradients =
        add(Tier::kHost, false,
            {.name = "arriving gradients",
             .group = "in flight",
             .bytes = Tensor::bytes_of(dtype, {static_cast<std::int64_t>(most)}),
             .first_step = 0,
             .last_step = optimizer_step()});
  }

  void add_state_file(std::vector<DType> buffers) {
    FlatFile::Layout& file = plan_.state_file;
    file.buffers = std::move(buffers);
    file.overlaps = plan_.tiers.overlaps;
    for (std::size_t block = 0; block < model_.size(); ++block) {
      file.parts.push_back(plan_.sharding.any() ? plan_.shards.mine(block)
                                                : plan_.flat.range(block));
      file.chunk_elements = std::max(file.chunk_elements, file.parts.back().elements);
    }
    file.chunk_elements = std::min(file.chunk_elements, kStagedElements);
    const bool with_parameters = plan_.tiers.parameters == Tier::kFile;
    std::size_t staging = file.staging_bytes();
    if (with_parameters) {
      staging += FlatFileReader::bytes(file, file.buffers.size() - 1);  // for what is gathered
    }
    // A save reads what it holds beside the steps: all flat buffers that are f32.
    const bool saves = plan_.sharding.any() || plan_.sharding.worker == 0;
    for (std::size_t buffer = 0; saves && buffer < file.buffers.size(); ++buffer) {
      if (file.buffers[buffer] == DType::kF32) staging += FlatFileReader::bytes(file, buffer);
    }
    add_file("states", with_parameters ? "states" : "optimizer", file.file_bytes(), staging);
  }

  // Of flat buffers that are not where the optimizer computes.
  void add_staging() {
    const Tiers& tiers = plan_.tiers;
    const Tier tier = tiers.update();
    const bool gradients = tiers.gradients != tier;
    // Those in a file come with the optimizer's states.
    const bool parameters = tiers.parameters != tier && tiers.parameters != Tier::kFile;
    if (!gradients && !parameters) return;
    plan_.staged_elements = std::min(kStagedElements, plan_.flat.elements());
    const auto add_pieces = [&](const char* name, DType dtype) {
      const auto elements = static_cast<std::int64_t>(2 * plan_.staged_elements);
      return add(tier, false,
                 {.name = name,
                  .group = "staging",
                  .bytes = Tensor::bytes_of(dtype, {elements}),
                  .first_step = tier == Tier::kDevice ? optimizer_step() : 0,
                  .last_step = optimizer_step()});
    };
    if (gradients) plan_.staged_gradients = add_pieces("staged gradients", plan_.setup.gradient);
    if (parameters) plan_.staged_parameters = add_pieces("staged parameters", plan_.setup.dtype);
  }

  std::size_t unit_bytes(std::size_t unit, DType dtype) const {
    const auto elements = static_cast<std::int64_t>(plan_.flat.range(unit).elements);
    return Tensor::bytes_of(dtype, {elements});
  }

  // The blocks whose parameters a block works with, or whose values its backward reads, the largest
  // first.
  std::vector<std::size_t> units_of(std::size_t block, bool in_backward = false) const {
    std::vector<std::size_t> units;
    for (std::size_t p = 0; p < plan_.specs[block].parameters.size(); ++p) {
      if (in_backward && !plan_.specs[block].parameters[p].backward_reads) continue;
      const FlatParameter* place = plan_.flat.place(block, p);
      if (place == nullptr || std::ranges::find(units, place->block) != units.end()) continue;
      units.push_back(place->block);
    }
    std::ranges::stable_sort(units, [&](std::size_t a, std::size_t b) {
      return plan_.flat.range(a).elements > plan_.flat.range(b).elements;
    });
    return units;
  }

  void add_gathered() {
    std::vector<std::vector<std::size_t>> reads(2 * model_.size());
    for (std::size_t block = 0; block < model_.size(); ++block) {
      const int index = static_cast<int>(block);
      reads[static_cast<std::size_t>(forward_of(index))] = units_of(block);
      reads[static_cast<std::size_t>(backward_of(index))] = units_of(block, true);
    }
    plan_.gathers = plan_gathers(std::move(reads),
                                 {.max_unsharded_blocks = plan_.sharding.max_unsharded_blocks,
                                  .reshard_after_forward = plan_.sharding.reshard_after_forward});
    for (const Gather& gather : plan_.gathers) {
      plan_.gathered.push_back(add(model_.block(gather.unit).name() + ".gathered", "gathered",
                                   unit_bytes(gather.unit, plan_.setup.dtype), gather.starts,
                                   gather.last));
    }
  }

  // From the first backward that adds to them (for a tied table that of the last block) to the end
  // of the backward that follows their block's own. Reducing them may take that long.
  void add_in_flight() {
    plan_.gradients_in_flight.resize(model_.size());
    std::vector<std::size_t> first_writers(model_.size());
    for (std::size_t block = 0; block < model_.size(); ++block) {
      for (const std::size_t unit : units_of(block)) first_writers[unit] = block;
    }
    for (std::size_t unit = 0; unit < model_.size(); ++unit) {
      plan_.gradients_in_flight[unit] =
          add(Tier::kDevice, plan_.sharding.gradients,
              {.name = model_.block(unit).name() + ".gradients",
               .group = "in flight",
               .bytes = unit_bytes(unit, plan_.setup.gradient),
               .first_step = backward_of(static_cast<int>(first_writers[unit])),
               .last_step = backward_of(static_cast<int>(unit)) + 1});
    }
  }

  // Adds the tensors of some lives, and says where they are in forward and in backward.
  void add_tensors(const std::string& group, std::initializer_list<Life> lives) {
    for (int i = 0; i < blocks_; ++i) {
      const Block& block = model_.block(static_cast<std::size_t>(i));
      const std::vector<TensorSpec>& tensors = plan_.specs[static_cast<std::size_t>(i)].tensors;
      BlockRequests& requests = plan_.blocks[static_cast<std::size_t>(i)];
      requests.forward.resize(tensors.size(), kAbsent);
      requests.backward.resize(tensors.size(), kAbsent);
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        const TensorSpec& tensor = tensors[t];
        if (std::find(lives.begin(), lives.end(), tensor.life) == lives.end()) continue;
        const bool kept = group == "activations";
        add_tensor(block.name() + "." + tensor.name, kept ? group + " " + block.name() : group,
                   tensor, i, requests.forward[t], requests.backward[t]);
      }
    }
  }

  void add_tensor(const std::string& name, const std::string& group, const TensorSpec& tensor,
                  int block, std::size_t& forward, std::size_t& backward) {
    const std::size_t bytes = Tensor::bytes_of(tensor.dtype, tensor.shape);
    const Recompute recompute = plan_.setup.of(static_cast<std::size_t>(block)).recompute;
    const bool full = recompute == Recompute::kFull;
    const bool spans = (tensor.life == Life::kKept && !full) ||
                       (tensor.life == Life::kRestored && recompute == Recompute::kNone);
    if (spans) {
      add_span(name, group, bytes, forward_of(block), backward_of(block), forward, backward);
      return;
    }
    // A tensor that forward fills again in backward has memory in both.
    if (tensor.life != Life::kBackward) {
      forward = add(name, group, bytes, forward_of(block), forward_of(block));
    }
    if (tensor.life != Life::kForward || full) {
      backward = add(name, group, bytes, backward_of(block), backward_of(block));
    }
  }

  // A buffer that one step writes and a later one reads; in between it may be in another tier.
  void add_span(const std::string& name, const std::string& group, std::size_t bytes, int made,
                int needed, std::size_t& before, std::size_t& after) {
    const Tier tier = plan_.tiers.activations;
    const bool leaves = tier != Tier::kDevice && made + 2 < needed - 1 && bytes > 0;
    if (!leaves) {
      before = after = add(name, group, bytes, made, needed);
      return;
    }
    before = add(name, group, bytes, made, made + 1);
    after = add(name, group, bytes, needed - 1, needed);
    std::size_t away = plan_.activation_file.items.size();
    if (tier == Tier::kFile) {
      plan_.activation_file.items.push_back(bytes);
    } else {
      away = add(tier, false, {name, group, bytes, made, needed}).request;
    }
    plan_.absences.push_back({before, away, after, made, needed});
  }

  void add_hand_over() {
    const Setup& setup = plan_.setup;
    for (int i = 0; i < blocks_; ++i) {
      const auto index = static_cast<std::size_t>(i);
      const Block& block = model_.block(index);
      BlockRequests& requests = plan_.blocks[index];
      const std::size_t bytes = Tensor::bytes_of(setup.dtype, block.output(setup));
      if (i + 1 < blocks_) {
        add_span(block.name() + ".output", "hand-over", bytes, forward_of(i), backward_of(i + 1),
                 requests.output, requests.output_backward);
        requests.output_gradient = add(block.name() + ".output gradient", "hand-over", bytes,
                                       backward_of(i + 1), backward_of(i));
      }
      const std::size_t memory = Tensor::bytes_of(setup.dtype, block.memory(setup));
      if (memory == 0) continue;
      if (plan_.memory_maker != kAbsent || i + 1 == blocks_) {
        fail(ErrorCode::kInvalidArgument, "block '{}' of the model '{}' makes a memory {}",
             block.name(), model_.name(),
             i + 1 == blocks_ ? "that no block reads; it is the last"
                              : "although an earlier block did; a model may have one memory");
      }
      plan_.memory_maker = index;
      plan_.memory =
          add(block.name() + ".memory", "hand-over", memory, forward_of(i), backward_of(i + 1));
      plan_.memory_gradient = add(block.name() + ".memory gradient", "hand-over", memory,
                                  backward_of(blocks_ - 1), backward_of(i));
    }
    plan_.losses = add("losses", "hand-over", Tensor::bytes_of(DType::kF32, {setup.shape.tokens()}),
                       forward_of(blocks_ - 1), optimizer_step());
  }

  // An operation's scratch is used within a step only, and the largest need not be where most is
  // alive: each step has its own.
  void add_scratch() {
    for (int i = 0; i < blocks_; ++i) {
      const auto index = static_cast<std::size_t>(i);
      const std::string name = model_.block(index).name() + ".scratch";
      const std::size_t bytes = plan_.specs[index].scratch;
      plan_.blocks[index].scratch_forward =
          add(name, kWorkspace, bytes, forward_of(i), forward_of(i));
      plan_.blocks[index].scratch_backward =
          add(name, kWorkspace, bytes, backward_of(i), backward_of(i));
    }
  }

  const Model& model_;
  MemoryPlan& plan_;
  int blocks_;
};

void check(const Setup& setup) {
  const BatchShape& shape = setup.shape;
  if (shape.batch < 1 || shape.sequence < 1 || shape.source_sequence < 0) {
    fail(ErrorCode::kInvalidArgument,
         "a micro-batch of {} sequences of {} tokens (source: {}) is empty; each of them must be 1 "
         "or more",
         shape.batch, shape.sequence, shape.source_sequence);
  }
  const auto computes = [](DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
  };
  if (!computes(setup.dtype)) {
    fail(ErrorCode::kInvalidArgument, "models compute in f32, bf16 or f16, not in {}",
         name(setup.dtype));
  }
  if (setup.fp8 && setup.dtype != DType::kBF16) {
    fail(ErrorCode::kInvalidArgument, "with fp8 all else is computed in bf16, not in {}",
         name(setup.dtype));
  }
  if (setup.gradient != DType::kF32 && setup.gradient != setup.dtype) {
    fail(ErrorCode::kInvalidArgument, "gradients of {} parameters must be f32 or {}, not {}",
         name(setup.dtype), name(setup.dtype), name(setup.gradient));
  }
}

}  // namespace

MemoryPlan plan_memory(const Model& model, const Setup& setup, const Ops& ops,
                       OptimizerState optimizer, const Sharding& sharding, const Tiers& tiers,
                       Places places) {
  check(setup);
  MemoryPlan plan;
  plan.setup = setup;
  plan.device = ops.device();
  plan.optimizer = optimizer;
  plan.sharding = sharding;
  plan.tiers = tiers;
  plan.specs = specs_of(model, setup, ops);
  plan.flat = FlatParameters(model, plan.specs, Shards::block_multiple(sharding));
  plan.shards = Shards(plan.flat, sharding);
  plan.blocks.resize(model.size());
  for (const BlockSpec& spec : plan.specs) {
    plan.flops.forward += spec.forward_flops;
    plan.flops.backward += spec.backward_flops;
    plan.flops.recompute += spec.recompute_flops;
  }
  Planner(model, plan).run();
  if (plan.device != Device{}) {
    plan.outside.push_back({.name = "batch",
                            .group = kWorkspace,
                            .bytes = DeviceBatch::bytes(setup.shape, model.block(0).features())});
  }
  const auto lay_out = places == Places::kFound ? plan_layout : bound_layout;
  plan.layout = lay_out(plan.requests);
  plan.symmetric_layout = lay_out(plan.symmetric_requests);
  plan.host_layout = lay_out(plan.host_requests);
  plan.host_symmetric_layout = lay_out(plan.host_symmetric_requests);
  plan.file_layout = lay_out(plan.file_requests);
  return plan;
}

}  // namespace lockstep::nn
