#include "lockstep/nn/memory/activation_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::nn {
namespace {

constexpr const char* kWorkspace = "workspace";
constexpr const char* kHandOver = "hand-over";

class ActivationPlanner : PlanRequests {
 public:
  ActivationPlanner(const Model& model, MemoryPlan& plan) : PlanRequests(model, plan) {
    std::size_t most = 1;
    for (const plan::BufferCounts& pool : plan.pools) most = std::max(most, count(pool.slots));
    plan.more_slots.assign(most - 1, std::vector<BlockRequests>(model.size()));
    plan.memories.assign(most, kAbsent);
    plan.losses.assign(most, kAbsent);
    plan.chunks.resize(model.chunks().size());
  }

  // Adds requests in the order in which reports list their classes.
  void run() {
    add_tensors("activations", {Life::kKept, Life::kRestored});
    for (std::size_t chunk = 0; chunk < model_.chunks().size(); ++chunk) {
      add_hand_over(chunk);
      add_weight_inputs(chunk);
    }
    add_file("what blocks keep", "activations", plan_.activation_file);
    add_tensors(kWorkspace, {Life::kForward, Life::kBackward});
    add_scratch();
    share_with_more_slots();
  }

 private:
  static std::size_t count(int buffers) { return static_cast<std::size_t>(buffers); }

  std::size_t chunk_index(std::size_t block) const {
    return static_cast<std::size_t>(&model_.chunk_of(block) - model_.chunks().data());
  }
  std::size_t slots_of(std::size_t block) const {
    return count(plan_.pools[chunk_index(block)].slots);
  }
  BlockRequests& requests_in(std::size_t slot, std::size_t block) {
    return slot == 0 ? plan_.blocks[block] : plan_.more_slots[slot - 1][block];
  }

  // A buffer whose lifetime depends on the schedule: it has its bytes all the time.
  std::size_t add_lasting(const std::string& name, const std::string& group, std::size_t bytes,
                          std::size_t index) {
    return add(index == 0 ? name : fmt::format("{} ({})", name, index + 1), group, bytes, 0,
               optimizer_step());
  }

  // Adds the tensors of some lives, and says where they are in forward and in backward.
  void add_tensors(const std::string& group, std::initializer_list<Life> lives) {
    for (std::size_t i = 0; i < model_.size(); ++i) {
      const std::vector<TensorSpec>& tensors = plan_.specs[i].tensors;
      for (std::size_t slot = 0; slot <= plan_.more_slots.size(); ++slot) {
        requests_in(slot, i).forward.resize(tensors.size(), kAbsent);
        requests_in(slot, i).backward.resize(tensors.size(), kAbsent);
      }
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        if (std::find(lives.begin(), lives.end(), tensors[t].life) == lives.end()) continue;
        const std::string& block = model_.block(i).name();
        const bool kept = group == "activations";
        add_tensor(block + "." + tensors[t].name, kept ? group + " " + block : group, i, t);
      }
    }
  }

  void add_tensor(const std::string& name, const std::string& group, std::size_t block,
                  std::size_t index) {
    const TensorSpec& tensor = plan_.specs[block].tensors[index];
    const std::size_t bytes = Tensor::bytes_of(tensor.dtype, tensor.shape);
    const Recompute recompute = plan_.setup.of(block).recompute;
    const bool full = recompute == Recompute::kFull;
    const bool spans = (tensor.life == Life::kKept && !full) ||
                       (tensor.life == Life::kRestored && recompute == Recompute::kNone);
    const int at = static_cast<int>(block);
    BlockRequests& requests = plan_.blocks[block];
    if (spans) {
      const auto place = [&](BlockRequests& of) -> Places {
        return {of.forward[index], of.backward[index]};
      };
      add_span(name, group, bytes, block, forward_of(at), backward_of(at), place);
      return;
    }
    // A tensor that forward fills again in backward has memory in both.
    if (tensor.life != Life::kBackward) {
      requests.forward[index] = add(name, group, bytes, forward_of(at), forward_of(at));
    }
    if (tensor.life != Life::kForward || full) {
      requests.backward[index] = add(name, group, bytes, backward_of(at), backward_of(at));
    }
  }

  // Where forward and backward find a buffer.
  struct Places {
    std::size_t& before;
    std::size_t& after;
  };

  // A buffer that one step writes and a later one reads, one for each slot. With one slot it may be
  // in another tier in between.
  template <class Place>
  void add_span(const std::string& name, const std::string& group, std::size_t bytes,
                std::size_t block, int made, int needed, Place&& place) {
    for (std::size_t slot = 0; !plan_.one_at_a_time && slot < slots_of(block); ++slot) {
      const Places places = place(requests_in(slot, block));
      places.before = places.after = add_lasting(name, group, bytes, slot);
    }
    if (!plan_.one_at_a_time) return;
    const Places places = place(plan_.blocks[block]);
    const Tier tier = plan_.tiers.activations;
    const bool leaves = tier != Tier::kDevice && made + 2 < needed - 1 && bytes > 0;
    if (!leaves) {
      places.before = places.after = add(name, group, bytes, made, needed);
      return;
    }
    places.before = add(name, group, bytes, made, made + 1);
    places.after = add(name, group, bytes, needed - 1, needed);
    std::size_t away = plan_.activation_file.items.size();
    if (tier == Tier::kFile) {
      plan_.activation_file.items.push_back(bytes);
    } else {
      away = add(tier, false, {name, group, bytes, made, needed}).request;
    }
    plan_.absences.push_back({places.before, away, places.after, made, needed});
  }

  std::size_t output_bytes(const Block& block) const {
    return Tensor::bytes_of(plan_.setup.dtype, block.output(plan_.setup));
  }
  std::size_t memory_bytes(const Block& block) const {
    return Tensor::bytes_of(plan_.setup.dtype, block.memory(plan_.setup));
  }

  void add_hand_over(std::size_t index) {
    const Chunk& chunk = model_.chunks()[index];
    std::size_t memory = chunk.maker == nullptr ? 0 : memory_bytes(*chunk.maker);
    if (chunk.before != nullptr) add_inputs(index, memory);
    for (std::size_t i = chunk.first; i < chunk.end; ++i) {
      const Block& block = model_.block(i);
      const int at = static_cast<int>(i);
      if (i + 1 < chunk.end) {
        const auto place = [](BlockRequests& of) -> Places {
          return {of.output, of.output_backward};
        };
        add_span(block.name() + ".output", kHandOver, output_bytes(block), i, forward_of(at),
                 backward_of(at + 1), place);
        plan_.blocks[i].output_gradient =
            add(block.name() + ".output gradient", kHandOver, output_bytes(block),
                backward_of(at + 1), backward_of(at));
      }
      if (memory_bytes(block) == 0) continue;
      const bool last = chunk.makes_losses && i + 1 == chunk.end;
      if (memory > 0 || last) {
        fail(ErrorCode::kInvalidArgument, "block '{}' of the model '{}' makes a memory {}",
             block.name(), model_.name(),
             last ? "that no block reads; it is the last"
                  : "although an earlier block did; a model may have one memory");
      }
      memory = memory_bytes(block);
      plan_.memory_maker = i;
      add_memory(chunk, memory);
    }
    if (chunk.makes_losses) {
      add_losses(chunk);
      // The gradient of a memory that came begins as zero here and leaves.
      const std::size_t sent = chunk.maker != nullptr ? memory : 0;
      add_gradients(index, 0, sent, count(plan_.pools[index].input_gradients));
    } else {
      const Block& last = model_.block(chunk.end - 1);
      add_gradients(index, output_bytes(last), memory, count(plan_.pools[index].gradients));
      for (std::size_t i = 0; i < count(plan_.pools[index].outputs); ++i) {
        plan_.chunks[index].outputs.push_back(
            {.x = add_lasting(last.name() + ".output", kHandOver, output_bytes(last), i)});
      }
    }
  }

  // The block that makes losses computes all its gradients at once: dlogits are large.
  void add_weight_inputs(std::size_t index) {
    const Chunk& chunk = model_.chunks()[index];
    for (std::size_t i = 0; i < count(plan_.pools[index].weight_inputs); ++i) {
      std::vector<std::size_t>& blocks = plan_.chunks[index].weight_inputs.emplace_back();
      for (std::size_t block = chunk.first; block < chunk.end; ++block) {
        const bool last = chunk.makes_losses && block + 1 == chunk.end;
        blocks.push_back(add_lasting(model_.block(block).name() + ".weight inputs", "weight inputs",
                                     last ? 0 : plan_.specs[block].weight_inputs, i));
      }
    }
  }

  // What comes from the chunk before, and the gradients that go back.
  void add_inputs(std::size_t index, std::size_t memory) {
    const Chunk& chunk = model_.chunks()[index];
    const std::string name = model_.block(chunk.first).name();
    const std::size_t bytes = output_bytes(*chunk.before);
    ChunkRequests& requests = plan_.chunks[index];
    for (std::size_t i = 0; i < count(plan_.pools[index].inputs); ++i) {
      requests.inputs.push_back(
          {.x = add_lasting(name + ".input", kHandOver, bytes, i),
           .memory = add_lasting(name + ".input memory", kHandOver, memory, i)});
    }
    for (std::size_t i = 0; i < count(plan_.pools[index].input_gradients); ++i) {
      requests.input_gradients.push_back(
          {.x = add_lasting(name + ".input gradient", kHandOver, bytes, i)});
    }
  }

  void add_gradients(std::size_t index, std::size_t bytes, std::size_t memory,
                     std::size_t buffers) {
    const std::string name = model_.block(model_.chunks()[index].end - 1).name();
    for (std::size_t i = 0; i < buffers && bytes + memory > 0; ++i) {
      plan_.chunks[index].gradients.push_back(
          {.x = add_lasting(name + ".output gradient", kHandOver, bytes, i),
           .memory = add_lasting(name + ".memory gradient", kHandOver, memory, i)});
    }
  }

  void add_memory(const Chunk& chunk, std::size_t bytes) {
    const int maker = static_cast<int>(plan_.memory_maker);
    const std::string name = model_.block(plan_.memory_maker).name() + ".memory";
    if (plan_.one_at_a_time && chunk.makes_losses) {
      plan_.memories[0] = add(name, kHandOver, bytes, forward_of(maker), backward_of(maker + 1));
    } else {
      for (std::size_t slot = 0; slot < slots_of(plan_.memory_maker); ++slot) {
        plan_.memories[slot] = add_lasting(name, kHandOver, bytes, slot);
      }
    }
    if (!chunk.makes_losses) return;  // it comes from the next chunk
    plan_.memory_gradient = add(name + " gradient", kHandOver, bytes,
                                backward_of(static_cast<int>(chunk.end) - 1), backward_of(maker));
  }

  void add_losses(const Chunk& chunk) {
    const std::size_t last = chunk.end - 1;
    const std::size_t bytes = Tensor::bytes_of(DType::kF32, {plan_.setup.shape.tokens()});
    if (plan_.one_at_a_time) {
      plan_.losses[0] =
          add("losses", kHandOver, bytes, forward_of(static_cast<int>(last)), optimizer_step());
      return;
    }
    for (std::size_t slot = 0; slot < slots_of(last); ++slot) {
      plan_.losses[slot] = add_lasting("losses", kHandOver, bytes, slot);
    }
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

  // What is used within a computation serves all slots.
  void share_with_more_slots() {
    const auto share = [](std::size_t& request, std::size_t first) {
      if (request == kAbsent) request = first;
    };
    for (std::vector<BlockRequests>& blocks : plan_.more_slots) {
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        const BlockRequests& first = plan_.blocks[i];
        for (std::size_t t = 0; t < first.forward.size(); ++t) {
          share(blocks[i].forward[t], first.forward[t]);
          share(blocks[i].backward[t], first.backward[t]);
        }
        share(blocks[i].scratch_forward, first.scratch_forward);
        share(blocks[i].scratch_backward, first.scratch_backward);
        share(blocks[i].output, first.output);
        share(blocks[i].output_backward, first.output_backward);
        share(blocks[i].output_gradient, first.output_gradient);
      }
    }
  }
};

}  // namespace

void plan_activations(const Model& model, MemoryPlan& plan) {
  ActivationPlanner(model, plan).run();
}

}  // namespace lockstep::nn
