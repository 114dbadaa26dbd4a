// A replica: a model with all its memory. It runs the blocks.
//
//   Model model = make_model(plan::find_model("gpt2-124m"));
//   MemoryPlan plan = plan_memory(model, setup, ops, OptimizerState::kMoments);
//   Replica replica(std::move(model), std::move(plan), ops);
//   replica.initialise(seed);
//   replica.zero_gradients();
//   Tensor losses = replica.forward_backward(batch, {.step = 1, .loss_factor = 1.f / targets});
//
// It allocates plan.layout.bytes on the device and plan.host_layout.bytes on the host once, at
// construction. A listener moves offloaded tensors (parallel/offload/tier_mover.h). Gradients
// accumulate over micro-batches until zero_gradients(). Results are complete after
// Ops::synchronize(). One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/nn/block_listener.h"
#include "lockstep/nn/device_batch.h"
#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/nn/pipeline_axis.h"
#include "lockstep/nn/replica/state_reader.h"
#include "lockstep/tensor/arena.h"
#include "lockstep/tensor/cuda.h"

namespace lockstep::nn {

// The position of a micro-batch in its step.
struct MicroBatch {
  std::uint64_t seed = 0;  // of dropout
  ops::Scalar step = 0;
  std::uint64_t first_sequence = 0;  // among all sequences of the step, in all ranks
  ops::Scalar loss_factor = 1;       // gradients are those of loss_factor * the sum of losses
};

// Flat buffers of nn/parameters/flat_parameters.h, or the same range of each; absent if there is
// none. A sharded one has the shards of one worker (nn/parameters/sharding.h).
struct States {
  Tensor parameters;  // of the compute type
  Tensor gradients;
  Tensor master;        // f32: what an optimizer updates; the parameters themselves if they are f32
  Tensor first_moment;  // f32
  Tensor second_moment;  // f32
  Tensor velocity;       // f32
  Tensor previous;       // of the compute type: the parameters before the latest update, if kept

  States slice(FlatRange range) const;
};

// Memory that is provided to a replica, and the budgets of what it allocates. All must outlive it.
struct ReplicaMemory {
  // Symmetric memory: MemoryPlan::symmetric_bytes(), first those of the device. On a GPU only
  // those of the device, and those of the host by themselves.
  std::span<std::byte> symmetric = {};
  std::span<std::byte> host_symmetric = {};
  MemoryBudget* device = nullptr;
  MemoryBudget* host = nullptr;
  // The options of the file tier. The plan counts its staging as outside memory.
  io::TierFileOptions file = {};
};

class Replica {
 public:
  // `ops` outlives the replica. Throws Error(kInvalidArgument) where the plan was not made for
  // model and ops, or where memory.symmetric has fewer bytes than planned; and what Arena throws if
  // memory is short.
  Replica(Model model, MemoryPlan plan, Ops& ops, const ReplicaMemory& memory = {});

  const Model& model() const { return model_; }
  const MemoryPlan& plan() const { return plan_; }
  const FlatParameters& flat() const { return plan_.flat; }
  const Setup& setup() const { return plan_.setup; }
  Ops& ops() const { return ops_; }
  // The operations of what lies on the host: ops() on the CPU, else the CPU's, with all cores.
  Ops& host_ops() const { return host_ops_ != nullptr ? *host_ops_ : ops_; }

  // Sets every parameter to its initial value, a pure function of the seed, its full name and the
  // position in it; sets gradients and the optimizer's states to zero. With sharding, only this
  // worker's shards.
  void initialise(std::uint64_t seed, int threads = 1);
  // Gradients in a file are not zeroed: the mover starts again.
  void zero_gradients();
  // The same for a step whose next computation is a micro-batch: what its backward overwrites is
  // not zeroed. Saves a pass over the gradients, and the reading of zeros. Elements between
  // parameters must be zeros.
  void begin_gradients();
  // Whether the next backward overwrites gradients. Where it was captured and launched, the caller
  // says that they are written.
  bool has_new_gradients() const { return new_gradients_; }
  void gradients_are_written() { new_gradients_ = false; }
  // Rounds the master copy to the parameters: all of them, or this worker's shards.
  void round_parameters();

  // Forward and backward of one micro-batch. Returns its losses, f32 [tokens], which hold until the
  // next call. Throws Error(kInvalidArgument) for a batch that is not of the setup's shape or lacks
  // what the model reads. All stages of a pipeline call it together, as they do evaluate(): the
  // micro-batch is in them alone, and the last one returns its losses.
  Tensor forward_backward(const Batch& batch, const MicroBatch& micro_batch = {});
  // Copies the batch to the device of the operations, unless it is there. Valid until the next
  // upload(), forward_backward() or evaluate().
  Batch upload(const Batch& batch);
  // Begins the upload of a batch that is computed later, beside what is computed now.
  void upload_ahead(const Batch& batch);
  // f64 [2] on a device that is not the CPU: for a MicroBatch's step and loss_factor.
  Tensor step_numbers() const { return device_batch_.numbers(); }
  // What forward_backward() returns.
  const Tensor& losses() const { return slots_.front().losses; }

  // The computations of a step schedule (plan/pipeline/step_schedule.h), which other micro-batches
  // may come between. `use` says which buffers of the plan's pools this micro-batch has. forward()
  // reads input() and makes output(); backward() reads output_gradient() too and makes
  // input_gradient(). The caller sends and receives these; they are absent at the ends of the
  // model. Returns the losses where the chunk makes them, else an absent tensor. The batch is on
  // the device. A slice of a micro-batch (nn/token_slice.h) reads and makes its rows of all of
  // them; the batch is the whole one.
  void forward(std::size_t chunk, const plan::BufferCounts& use, const Batch& batch,
               const MicroBatch& micro_batch);
  Tensor backward(std::size_t chunk, const plan::BufferCounts& use, const Batch& batch,
                  const MicroBatch& micro_batch);
  // The two parts of backward(): the second computes the gradients of weights that blocks leave for
  // later (nn/weight_gradients.h), which no other stage waits for.
  Tensor backward_input(std::size_t chunk, const plan::BufferCounts& use, const Batch& batch,
                        const MicroBatch& micro_batch);
  void backward_weight(std::size_t chunk, const plan::BufferCounts& use);
  Flow input(std::size_t chunk, const plan::BufferCounts& use) const;
  Flow output(std::size_t chunk, const plan::BufferCounts& use) const;
  Flow output_gradient(std::size_t chunk, const plan::BufferCounts& use) const;
  Flow input_gradient(std::size_t chunk, const plan::BufferCounts& use) const;
  // Forward alone, without dropout. Where `logits` is given, [tokens, classes] of the compute type,
  // they are written too; then the batch may be without targets or outputs, and the result is
  // absent.
  Tensor evaluate(const Batch& batch, const Tensor& logits = {});

  // All flat buffers; a block's range is states().slice(flat().range(block)) where they are whole.
  const States& states() const { return states_; }
  // This worker's shard of a block, or all of it without sharding: its range in the whole flat
  // buffer, and its states.
  FlatRange my_range(std::size_t block) const;
  States mine(std::size_t block) const;
  // Unsharded blocks of sharded or offloaded flat buffers: the target of a gather of the plan, and
  // the gradients of a block, which are a range of the flat buffer if that is unsharded and on the
  // device.
  Tensor gathered(std::size_t gather) const;
  Tensor gradients_of(std::size_t block) const;
  Tensor gradients_written(std::size_t block) const;
  // The staging of this worker's gradients of a block before they go to a file.
  Tensor arriving_gradients(std::size_t block) const;
  // The memory of an absence of the plan, as bytes: on the device when it is made, on the host
  // (absent for a file), and on the device when it is read.
  struct AbsenceViews {
    Tensor before, away, after;
  };
  AbsenceViews absence(std::size_t index) const;
  // Staging of flat buffers for the tier where the optimizer computes; absent if it is not needed.
  Tensor staged_gradients() const;
  Tensor staged_parameters() const;
  // Of a delayed update (nn/parameters/tiers.h). Where gradients are on the host, take_gradients()
  // makes their flat buffer the delayed one, and the delayed one that of the next step; where
  // parameters are, take_parameters() makes the next ones those that are computed with.
  const Tensor& delayed_gradients() const { return delayed_gradients_; }
  const Tensor& next_parameters() const { return next_parameters_; }
  void take_gradients();
  void take_parameters();
  // With two versions of the weights (MemoryPlan::weight_versions): which one computations read
  // from now on. `previous` are the parameters before the latest update.
  enum class Version : std::uint8_t { kLatest, kPrevious };
  void use_version(Version version) { version_ = version; }
  // Whether the previous version has been set: after the first update, or by a checkpoint. The
  // first step has none before it; keep_version() makes its own parameters the previous ones.
  bool has_previous() const { return has_previous_; }
  void set_has_previous(bool has) { has_previous_ = has; }
  // Copies the parameters of a block, which are about to change, or of all blocks.
  void keep_version(std::size_t block);
  void keep_version();
  // Copies the gradients, so that the next step's can follow them while this step's are used.
  void keep_gradients();
  // The file of optimizer states; states() then lacks these flat buffers (use
  // nn/replica/state_stream.h). nullptr if nothing is in a file.
  FlatFile* state_file() const { return state_file_.get(); }
  std::span<Tensor States::*const> filed_states() const { return filed_states_; }
  // The files of activations, with an item for each absence of the plan, and of this worker's
  // gradients, with one for each block; nullptr if they are not in files. For the mover.
  io::StagedFile* activation_file() const { return activation_file_.get(); }
  io::StagedFile* gradient_file() const { return gradient_file_.get(); }
  // Bytes written to and read from all files so far, except for states read without a StateStream.
  io::TierTraffic filed_traffic() const;
  // How what blocks quantize is scaled, f32 [tensors, ops::kScaling]; absent without fp8. Changes
  // with updates, and in the first micro-batch of a run, which finds the first scales.
  const Tensor& scaling() const { return scaling_; }
  void set_scaling(const Tensor& scaling);  // on the CPU
  // Whether a block waits for numbers of its device, so that a micro-batch cannot be captured.
  bool reads_back() const;
  // Whether the next micro-batch finds the first scales.
  bool calibrates() const { return calibrates_; }
  // f32, for each row of the scaling the amax of this step's micro-batches so far. Workers that
  // share a step take the largest of all before the update.
  const Tensor& amax() const { return amax_; }
  // With an update: takes the amax of its micro-batches into the scaling.
  void update_scaling() const;
  // f64, for an optimizer: as many as there are blocks, or more.
  Tensor sums_of_squares() const { return sums_of_squares_; }
  // One parameter by its full name, tied or not, and its gradient, of flat buffers that are whole.
  Tensor parameter(std::string_view name) const;
  Tensor gradient(std::string_view name) const;

  // The parameters of a block in forward, for callers that run forward themselves: valid between
  // the listener's before_forward() and after_forward().
  std::span<const Tensor> parameters_in_forward(std::size_t block) const {
    return views_.at(block).parameters;
  }
  void tell_before_forward(std::size_t block) const {
    if (listener_ != nullptr) listener_->before_forward(block);
  }
  void tell_after_forward(std::size_t block) const {
    if (listener_ != nullptr) listener_->after_forward(block);
  }

  // The output of a block in the last forward; valid in a listener's after_forward(), before later
  // blocks reuse the memory. Absent for the last block.
  Tensor output(std::size_t block) const { return out_of(block, current_).x; }

  // The rows that the sparse gradient of the first block will touch in the forward_backward() under
  // way, i32. Absent where it has none.
  const Tensor& pending_rows() const { return pending_rows_; }
  // Whether backward of the first block skips its sparse gradient, if it has one, and leaves it to
  // sparse_gradient(): for strategies that reduce it by themselves.
  void set_separate_sparse_gradient(bool separate) { separate_sparse_gradient_ = separate; }
  // What backward skipped in the last forward_backward(); holds until the next one.
  const std::optional<SparseGradient>& sparse_gradient() const { return sparse_gradient_; }

  // Sets the listener of blocks; nullptr: none. Not owned.
  void set_listener(BlockListener* listener) { listener_ = listener; }

  // Sets the communication of the model's tensor group. Not owned. Needed before the first forward
  // where the model was made for more than one rank.
  void set_tensor_axis(TensorAxis* axis) { tensor_axis_ = axis; }
  void set_context_axis(ContextAxis* axis) { context_axis_ = axis; }
  ContextAxis* context_axis() const { return context_axis_; }
  void set_expert_axis(ExpertAxis* axis) { expert_axis_ = axis; }
  ExpertAxis* expert_axis() const { return expert_axis_; }
  TensorAxis* tensor_axis() const { return tensor_axis_; }
  // The position that the model was made for.
  const TensorGroup& tensor_group() const { return plan_.flat.tensor_group(); }
  // The same for the pipeline that the model is a stage of.
  void set_pipeline_axis(PipelineAxis* axis) { pipeline_axis_ = axis; }
  PipelineAxis* pipeline_axis() const { return pipeline_axis_; }
  // The stages before and after this one; micro-batches go around them.
  int previous_stage() const { return (model_.stage() + model_.stages() - 1) % model_.stages(); }
  int next_stage() const { return (model_.stage() + 1) % model_.stages(); }

  // Sets the reader that reads states during steps; nullptr: none. Not owned.
  // Returns when no before_change() uses the one before.
  void set_reader(StateReader* reader);
  // Call it before changing the master copy or the optimizer states of a block, or of all: returns
  // when the reader has read them. Thread-safe: updates have threads of their own.
  void before_change(std::size_t block) const;
  void before_change_of_all() const;

 private:
  // Of a block, for all micro-batches.
  struct BlockViews {
    std::vector<Tensor> parameters;  // in forward
    std::vector<Tensor> parameters_backward;
    std::vector<Tensor> previous;  // version of both
    std::vector<Tensor> gradients;
    Tensor scratch_forward;
    Tensor scratch_backward;
    Tensor scaling, amax;
    Tensor output_gradient;  // absent where it comes from another stage
    Setup setup;
    std::vector<Setup> slices;  // of computations of one slice
    std::uint64_t seed = 0;     // from its name
  };
  // Of a block and one micro-batch.
  struct KeptViews {
    std::vector<Tensor> forward;
    std::vector<Tensor> backward;
    Tensor output;  // absent where it goes to another stage
    Tensor output_backward;
    std::vector<std::vector<Tensor>> forward_slices;  // what each slice has of `forward`
    std::vector<std::vector<Tensor>> backward_slices;
    std::vector<HostCounts> host_counts;  // of all slices together, then of each
  };
  struct Slot {
    std::vector<KeptViews> blocks;
    Tensor memory;
    Tensor losses;
  };
  struct ChunkMessages {
    std::vector<Flow> inputs, gradients, outputs, input_gradients;
    std::vector<std::vector<WeightGradients>> weights;  // of every block of the chunk
  };

  Tensor view(std::size_t request, DType dtype, const Shape& shape) const;
  Tensor view(BufferPlace place, DType dtype, const Shape& shape) const;
  void take_symmetric();
  void make_states();
  void make_state_file(io::TierFileOptions options);
  void make_files(const io::TierFileOptions& options);
  void round_on_host(const States& states) const;
  void make_views();
  void make_slots();
  void make_slices(Slot& slot);
  void make_messages();
  static HostCounts* host_counts_of(KeptViews& kept, const plan::BufferCounts& use) {
    return &kept.host_counts[static_cast<std::size_t>(use.slice - plan::BufferCounts::kAllSlices)];
  }
  // The rows of a slice of [tokens, ...].
  Tensor rows_of(const Tensor& whole, const plan::BufferCounts& use) const;
  Batch part_of(const Batch& batch, const plan::BufferCounts& use) const;
  std::size_t chunk_index(std::size_t block) const;
  Tensor memory_after(std::size_t block, const plan::BufferCounts& use) const;
  Tensor memory_gradient_after(std::size_t block, const plan::BufferCounts& use) const;
  Flow in_of(std::size_t block, const plan::BufferCounts& use, bool backward) const;
  Flow out_of(std::size_t block, const plan::BufferCounts& use) const;
  Flow dout_of(std::size_t block, const plan::BufferCounts& use) const;
  Flow din_of(std::size_t block, const plan::BufferCounts& use) const;
  // Page-locked memory of the host, or memory of the device, as operations of the device use it.
  Tensor in_place(const Tensor& tensor) const;
  Tensor parameter_at(int step, const FlatParameter* place) const;
  Tensor previous_at(const FlatParameter* place) const;
  Tensor gradient_at(const FlatParameter* place) const;
  void reset_scaling();
  void find_overwriting_blocks();
  void check(const Batch& batch) const;
  void forward_block(std::size_t block, const Batch& batch, const MicroBatch& micro_batch,
                     const plan::BufferCounts& use, bool training, const Tensor& logits);
  // `later` takes gradients of weights, so the block has not finished with its parameters; nullptr:
  // none are left.
  void backward_block(std::size_t block, const Batch& batch, const MicroBatch& micro_batch,
                      const plan::BufferCounts& use, WeightGradients* later);
  void zero_memory_gradient(const Chunk& chunk, const plan::BufferCounts& use) const;
  void finish_copies(std::size_t chunk) const;
  Tensor losses_of(const Chunk& chunk, const plan::BufferCounts& use) const;
  Pass pass(std::size_t block, const Batch& batch, const MicroBatch& micro_batch,
            const plan::BufferCounts& use, bool training);
  void exchange(const Flow& flow, int stage, bool sends) const;

  Model model_;
  MemoryPlan plan_;
  Ops& ops_;
  Arena arena_;
  Arena host_arena_;
  PinnedRange pinned_;             // the memory of host_arena_, beside a GPU
  std::unique_ptr<Ops> host_ops_;  // beside a GPU, where something lies on the host
  DeviceBatch device_batch_;
  MemoryClaim symmetric_claim_;
  MemoryClaim host_symmetric_claim_;
  std::span<std::byte> symmetric_;
  std::span<std::byte> host_symmetric_;
  PinnedRange pinned_symmetric_;  // host_symmetric_, beside a GPU
  States states_;
  std::unique_ptr<FlatFile> state_file_;
  std::vector<Tensor States::*> filed_states_;
  std::unique_ptr<io::StagedFile> activation_file_;
  std::unique_ptr<io::StagedFile> gradient_file_;
  Tensor delayed_gradients_;
  Tensor next_parameters_;
  Version version_ = Version::kLatest;
  bool has_previous_ = false;
  Tensor sums_of_squares_;
  Tensor scaling_;
  Tensor amax_;
  bool calibrates_ = false;
  std::vector<bool> overwriting_;  // by block: backward overwrites new gradients
  bool new_gradients_ = false;     // those of overwriting blocks hold nothing
  Tensor memory_gradient_;         // where no other stage sends it
  std::vector<BlockViews> views_;
  std::vector<Slot> slots_;
  std::vector<ChunkMessages> messages_;
  std::vector<std::vector<std::size_t>> copies_;  // whose gradients each chunk finishes
  plan::BufferCounts current_;                    // of the last computation
  bool separate_sparse_gradient_ = false;
  std::optional<SparseGradient> sparse_gradient_;
  Tensor pending_rows_;
  BlockListener* listener_ = nullptr;
  StateReader* reader_ = nullptr;
  std::unique_ptr<std::shared_mutex> reading_;  // of reader_
  TensorAxis* tensor_axis_ = nullptr;
  ContextAxis* context_axis_ = nullptr;
  ExpertAxis* expert_axis_ = nullptr;
  PipelineAxis* pipeline_axis_ = nullptr;
};

// The sum of losses, in order and in f64, after Ops::synchronize(); 0 of an absent tensor.
double sum_of(const Tensor& losses);
// The number of tokens with a target, or of items: the divisor of a mean loss.
std::int64_t count_targets(const Batch& batch);

}  // namespace lockstep::nn
