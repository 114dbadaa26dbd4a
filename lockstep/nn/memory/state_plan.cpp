#include "lockstep/nn/memory/state_plan.h"

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::nn {
namespace {

constexpr const char* kGradients = "gradients";
constexpr int kSumsOfParts = 1024;
// Elements of a staging chunk between tiers: enough to hide the start-up cost of a copy.
constexpr std::size_t kStagedElements = std::size_t{1} << 18;
constexpr std::size_t kElementsOverBus = std::size_t{1} << 21;  // between a GPU and the host

class StatePlanner : PlanRequests {
 public:
  using PlanRequests::PlanRequests;

  void run() {
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
    add_delayed_update();
    if (plan_.weight_versions > 1) add_previous_version();
    // Workers with shards exchange more sums than one per block, and a GPU should not wait often.
    const bool many = sharding.any() || plan_.device != Device{};
    const std::int64_t sums = many ? std::max(blocks_, kSumsOfParts) : blocks_;
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

 private:
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
    bool saves = plan_.sharding.any();
    for (std::size_t block = 0; block < model_.size(); ++block) {
      saves = saves || plan_.sharding.place_of(plan_.flat.has_experts(block)) == 0;
    }
    for (std::size_t buffer = 0; saves && buffer < file.buffers.size(); ++buffer) {
      if (file.buffers[buffer] == DType::kF32) staging += FlatFileReader::bytes(file, buffer);
    }
    add_file("states", with_parameters ? "states" : "optimizer", file.file_bytes(), staging);
  }

  void add_delayed_update() {
    if (!plan_.tiers.delayed_update) return;
    plan_.delayed_gradients =
        add_buffer("delayed gradients", kGradients, plan_.setup.gradient, false, Tier::kHost);
    plan_.next_parameters =
        add_buffer("next parameters", "parameters", plan_.setup.dtype, false, Tier::kHost);
  }

  void add_previous_version() {
    plan_.delayed_gradients =
        add_buffer("delayed gradients", kGradients, plan_.setup.gradient, false, Tier::kDevice);
    plan_.previous_parameters =
        add_buffer("previous parameters", "parameters", plan_.setup.dtype, false, Tier::kDevice);
  }

  // Of flat buffers that are not where the optimizer computes. A delayed update has whole buffers.
  void add_staging() {
    const Tiers& tiers = plan_.tiers;
    if (tiers.delayed_update) return;
    const Tier tier = tiers.update();
    const bool gradients = tiers.gradients != tier;
    // Those in a file come with the optimizer's states.
    const bool parameters = tiers.parameters != tier && tiers.parameters != Tier::kFile;
    if (!gradients && !parameters) return;
    const bool crosses_bus = plan_.device != Device{};
    plan_.staged_elements =
        std::min(crosses_bus ? kElementsOverBus : kStagedElements, plan_.flat.elements());
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
      if (model_.is_copy(block)) continue;
      const int index = static_cast<int>(block);
      reads[static_cast<std::size_t>(forward_of(index))] = units_of(block);
      reads[static_cast<std::size_t>(backward_of(index))] = units_of(block, true);
    }
    plan_.gathers = plan_gathers(std::move(reads),
                                 {.max_unsharded_blocks = plan_.sharding.max_unsharded_blocks,
                                  .reshard_after_forward = plan_.sharding.reshard_after_forward,
                                  .restarts = restarts()});
    for (const Gather& gather : plan_.gathers) {
      plan_.gathered.push_back(add(model_.block(gather.unit).name() + ".gathered", "gathered",
                                   unit_bytes(gather.unit, plan_.setup.dtype), gather.starts,
                                   gather.last));
    }
  }

  // Forwards and backwards of a stage's chunks follow each other in any order.
  std::vector<int> restarts() const {
    std::vector<int> steps;
    for (const Chunk& chunk : model_.chunks()) {
      if (model_.stages() == 1) break;
      steps.push_back(forward_of(static_cast<int>(chunk.first)));
      steps.push_back(backward_of(static_cast<int>(chunk.end) - 1));
    }
    return steps;
  }

  // Gradients that are reduced after every micro-batch cannot hold those of two at once.
  void check_whole_backwards() const {
    const bool splits = std::ranges::any_of(
        plan_.pools, [](const plan::BufferCounts& pool) { return pool.weight_inputs > 0; });
    if (!plan_.sharding.gradients || !splits) return;
    fail(ErrorCode::kUnsupported,
         "a parallel.pipeline_schedule that splits backward is not supported with sharded "
         "gradients. Take parallel.zero = 1, parallel.no_sync = true, or another schedule");
  }
  void check_one_chunk(std::size_t unit) const {
    std::set<const Chunk*> readers;
    for (std::size_t block = 0; block < model_.size(); ++block) {
      if (model_.is_copy(block) || std::ranges::count(units_of(block), unit) == 0) continue;
      readers.insert(&model_.chunk_of(block));
    }
    if (!plan_.sharding.gradients || readers.size() < 2) return;
    fail(
        ErrorCode::kUnsupported,
        "several chunks of a stage share the parameters of block '{}', which is not supported with "
        "sharded gradients. Take parallel.zero = 1, parallel.no_sync = true, or another "
        "parallel.pipeline_schedule",
        model_.block(unit).name());
  }

  // From the first backward that adds to them (for a tied table that of the last block) to the end
  // of the backward that follows their block's own. Reducing them may take that long.
  void add_in_flight() {
    check_whole_backwards();
    plan_.gradients_in_flight.resize(model_.size());
    std::vector<std::size_t> first_writers(model_.size());
    for (std::size_t block = 0; block < model_.size(); ++block) {
      for (const std::size_t unit : units_of(block)) first_writers[unit] = block;
    }
    for (std::size_t unit = 0; unit < model_.size(); ++unit) {
      check_one_chunk(unit);
      plan_.gradients_in_flight[unit] =
          add(Tier::kDevice, plan_.sharding.gradients,
              {.name = model_.block(unit).name() + ".gradients",
               .group = "in flight",
               .bytes = unit_bytes(unit, plan_.setup.gradient),
               .first_step = backward_of(static_cast<int>(first_writers[unit])),
               .last_step = backward_of(static_cast<int>(unit)) + 1});
    }
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
};

}  // namespace

void plan_states(const Model& model, MemoryPlan& plan) { StatePlanner(model, plan).run(); }

}  // namespace lockstep::nn
