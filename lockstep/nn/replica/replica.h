// One copy of a model with all its memory, and the running of its blocks.
//
//   Model model = make_model(plan::find_model("gpt2-124m"));
//   MemoryPlan plan = plan_memory(model, setup, ops, OptimizerState::kMoments);
//   Replica replica(std::move(model), std::move(plan), ops);
//   replica.initialise(seed);
//   replica.zero_gradients();
//   Tensor losses = replica.forward_backward(batch, {.step = 1, .loss_factor = 1.f / targets});
//
// It takes plan.layout.bytes on the device and plan.host_layout.bytes on the host once, at
// construction, and nothing more but the memory it is given. What the plan has in other tiers than
// the device is moved by a listener (parallel/offload/tier_mover.h).
// Gradients add up over micro-batches until zero_gradients(). What a call computed is there after
// Ops::synchronize(). One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/nn/block_listener.h"
#include "lockstep/nn/device_batch.h"
#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/nn/replica/state_reader.h"
#include "lockstep/tensor/arena.h"

namespace lockstep::nn {

// What a micro-batch is within its step.
struct MicroBatch {
  std::uint64_t seed = 0;  // of dropout
  ops::Scalar step = 0;
  std::uint64_t first_sequence = 0;  // among all sequences of the step, in all ranks
  ops::Scalar loss_factor = 1;       // gradients are those of loss_factor * the sum of losses
};

// Flat buffers of nn/parameters/flat_parameters.h, or the same range of each; absent where there is
// none. A sharded one has the shards of one worker (nn/parameters/sharding.h).
struct States {
  Tensor parameters;  // of the compute type
  Tensor gradients;
  Tensor master;  // f32: what an optimizer updates; the parameters themselves where they are f32
  Tensor first_moment;   // f32
  Tensor second_moment;  // f32
  Tensor velocity;       // f32

  States slice(FlatRange range) const;
};

// What a worker holds of one parameter.
struct StatePart {
  std::size_t first = 0;  // of its elements
  States states;          // absent where it holds nothing of it
};

// Memory that a replica is given, and what counts the memory it takes. All outlive it.
struct ReplicaMemory {
  // Symmetric memory: MemoryPlan::symmetric_bytes(), first those of the device.
  std::span<std::byte> symmetric = {};
  MemoryBudget* device = nullptr;
  MemoryBudget* host = nullptr;
  // Where what lies in files goes. Nobody counts the bytes of the staging for it: the plan has them
  // outside.
  io::TierFileOptions file = {};
};

class Replica {
 public:
  // `ops` outlives the replica. Throws Error(kInvalidArgument) where the plan was not made for
  // model and ops, or where memory.symmetric has fewer bytes than planned; and what Arena throws
  // where there is no room.
  Replica(Model model, MemoryPlan plan, Ops& ops, const ReplicaMemory& memory = {});

  const Model& model() const { return model_; }
  const MemoryPlan& plan() const { return plan_; }
  const FlatParameters& flat() const { return plan_.flat; }
  const Setup& setup() const { return plan_.setup; }
  Ops& ops() const { return ops_; }

  // Sets every parameter to its initial value, a pure function of the seed, its full name and the
  // position in it; sets gradients and the optimizer's states to zero. Of what workers shard
  // it is this one's parts.
  void initialise(std::uint64_t seed, int threads = 1);
  // Those in a file are left: whoever moves them starts again.
  void zero_gradients();
  // Makes the parameters what the master copy says: all of them where flat buffers are whole, or
  // this worker's parts.
  void round_parameters();

  // Forward and backward of one micro-batch. Returns its losses, f32 [tokens], which hold until the
  // next call. Throws Error(kInvalidArgument) for a batch that is not of the setup's shape or lacks
  // what the model reads.
  Tensor forward_backward(const Batch& batch, const MicroBatch& micro_batch = {});
  // The batch where the operations read it: copied to their device unless it lies there. Holds
  // until the next call of this, forward_backward() or evaluate().
  Batch upload(const Batch& batch);
  // f64 [2] on a device that is not the CPU: for a MicroBatch's step and loss_factor.
  Tensor step_numbers() const { return device_batch_.numbers(); }
  // What forward_backward() returns.
  const Tensor& losses() const { return losses_; }
  // Forward alone, without dropout. Where `logits` is given, [tokens, classes] of the compute type,
  // they are written too; then the batch may be without targets or outputs, and the result is
  // absent.
  Tensor evaluate(const Batch& batch, const Tensor& logits = {});

  // All flat buffers; a block's range is states().slice(flat().range(block)) where they are whole.
  const States& states() const { return states_; }
  // This worker's part of a block: all of it where nothing is sharded. In the whole flat buffer,
  // and in every flat buffer there is.
  FlatRange my_range(std::size_t block) const;
  States mine(std::size_t block) const;
  StatePart part_of(const FlatParameter& parameter) const;
  // Unsharded blocks of flat buffers that are sharded or elsewhere: where a gather of the plan
  // brings one to, and a block's gradients. The latter are a part of the flat buffer where that is
  // whole; where that lies in another tier, backward writes them elsewhere.
  Tensor gathered(std::size_t gather) const;
  Tensor gradients_of(std::size_t block) const;
  Tensor gradients_written(std::size_t block) const;
  // Where this worker's part of a block's gradients comes to on its way to a file.
  Tensor arriving_gradients(std::size_t block) const;
  // Of an absence of the plan, as bytes: on the device when it was made, away (absent in a file),
  // and on the device when it is read.
  struct AbsenceViews {
    Tensor before, away, after;
  };
  AbsenceViews absence(std::size_t index) const;
  // Chunks of flat buffers on their way to where the optimizer computes; absent where none are.
  Tensor staged_gradients() const;
  Tensor staged_parameters() const;
  // What of the optimizer's states lies in a file, in the order of its flat buffers, which states()
  // are then without (nn/replica/state_stream.h passes over them); nullptr where nothing does.
  FlatFile* state_file() const { return state_file_.get(); }
  std::span<Tensor States::*const> filed_states() const { return filed_states_; }
  // What blocks keep, an item for each absence of the plan, and this worker's parts of gradients,
  // one for each block; nullptr where they lie elsewhere. Whoever moves them works with these.
  io::StagedFile* activation_file() const { return activation_file_.get(); }
  io::StagedFile* gradient_file() const { return gradient_file_.get(); }
  // What went to all files and came back so far, but for what others than a StateStream read of
  // states.
  io::TierTraffic filed_traffic() const;
  // How what blocks quantize is scaled, f32 [tensors, ops::kScaling]; absent without fp8. Changes
  // with updates, and in the first micro-batch of a run, which finds the first scales.
  const Tensor& scaling() const { return scaling_; }
  void set_scaling(const Tensor& scaling);  // on the CPU
  // Whether the next micro-batch finds the first scales.
  bool calibrates() const { return calibrates_; }
  // With an update: takes the amax of its micro-batches into the scaling.
  void update_scaling() const;
  // f64, for an optimizer: as many as there are blocks, or more.
  Tensor sums_of_squares() const { return sums_of_squares_; }
  // One parameter by its full name, tied or not, and its gradient, of flat buffers that are whole.
  Tensor parameter(std::string_view name) const;
  Tensor gradient(std::string_view name) const;

  // For whoever runs the blocks' forward by itself, one after the other: what a block reads there,
  // once the listener was told that it begins, until it was told that it ended.
  std::span<const Tensor> parameters_in_forward(std::size_t block) const {
    return views_.at(block).parameters;
  }
  void tell_before_forward(std::size_t block) const {
    if (listener_ != nullptr) listener_->before_forward(block);
  }
  void tell_after_forward(std::size_t block) const {
    if (listener_ != nullptr) listener_->after_forward(block);
  }

  // What a block handed on in the last forward, while no later block's memory lies there: to be
  // looked at by a listener in after_forward(). Absent for the last block.
  Tensor output(std::size_t block) const { return views_.at(block).out.x; }

  // The rows that the sparse gradient of the first block will touch in the forward_backward() under
  // way, i32. Absent where it has none.
  const Tensor& pending_rows() const { return pending_rows_; }
  // Whether backward of the first block skips its sparse gradient, if it has one, and leaves it to
  // sparse_gradient(): for strategies that reduce it by themselves.
  void set_separate_sparse_gradient(bool separate) { separate_sparse_gradient_ = separate; }
  // What backward skipped in the last forward_backward(); holds until the next one.
  const std::optional<SparseGradient>& sparse_gradient() const { return sparse_gradient_; }

  // Hears of every block from now on; nullptr: nobody does. Not owned.
  void set_listener(BlockListener* listener) { listener_ = listener; }

  // Who reads the states beside the steps from now on; nullptr: nobody does. Not owned.
  void set_reader(StateReader* reader) { reader_ = reader; }
  // Whoever changes the master copy of a block, or what an optimizer keeps of it, says so before:
  // it returns when that has been read. The same of all blocks.
  void before_change(std::size_t block) const {
    if (reader_ != nullptr) reader_->before_change(block);
  }
  void before_change_of_all() const;

 private:
  struct BlockViews {
    std::vector<Tensor> parameters;  // in forward
    std::vector<Tensor> parameters_backward;
    std::vector<Tensor> gradients;
    std::vector<Tensor> forward;
    std::vector<Tensor> backward;
    Tensor scratch_forward;
    Tensor scratch_backward;
    Tensor scaling, amax;
    Flow in, out, dout, din;
    Flow in_backward;
    Setup setup;
    std::uint64_t seed = 0;  // from its name
  };

  Tensor view(std::size_t request, DType dtype, const Shape& shape) const;
  Tensor view(BufferPlace place, DType dtype, const Shape& shape) const;
  void make_states();
  void make_state_file(io::TierFileOptions options);
  void make_files(const io::TierFileOptions& options);
  void make_views();
  Tensor parameter_at(int step, const FlatParameter* place) const;
  Tensor gradient_at(const FlatParameter* place) const;
  void reset_scaling();
  void check(const Batch& batch) const;
  void forward(std::size_t block, const Batch& batch, const MicroBatch& micro_batch, bool training,
               const Tensor& logits);
  void backward(std::size_t block, const Batch& batch, const MicroBatch& micro_batch);
  Pass pass(std::size_t block, const Batch& batch, const MicroBatch& micro_batch, bool training);

  Model model_;
  MemoryPlan plan_;
  Ops& ops_;
  Arena arena_;
  Arena host_arena_;
  DeviceBatch device_batch_;
  MemoryClaim symmetric_claim_;
  MemoryClaim host_symmetric_claim_;
  std::span<std::byte> symmetric_;
  States states_;
  std::unique_ptr<FlatFile> state_file_;
  std::vector<Tensor States::*> filed_states_;
  std::unique_ptr<io::StagedFile> activation_file_;
  std::unique_ptr<io::StagedFile> gradient_file_;
  Tensor sums_of_squares_;
  Tensor scaling_;
  Tensor amax_;
  bool calibrates_ = false;
  Tensor losses_;
  Tensor memory_gradient_;
  std::vector<BlockViews> views_;
  bool separate_sparse_gradient_ = false;
  std::optional<SparseGradient> sparse_gradient_;
  Tensor pending_rows_;
  BlockListener* listener_ = nullptr;
  StateReader* reader_ = nullptr;
};

// The sum of losses, in order and in f64, after Ops::synchronize().
double sum_of(const Tensor& losses);
// How many tokens have a target, or items an output: what a mean loss is divided by.
std::int64_t count_targets(const Batch& batch);

}  // namespace lockstep::nn
