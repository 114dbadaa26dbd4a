// A model is a list of Blocks (embedding, layers, head), each with an explicit forward and
// backward. Sharding gathers and frees per block, recomputation re-runs a block, offload moves a
// block's states, a pipeline stage is a run of blocks. None of these depends on the kind of block,
// and a block depends on none of them.
//
// A block owns no memory. It declares what it needs as shapes (spec()), before any memory exists;
// the caller plans the memory and passes views in a Pass. What a block declares, by lifetime:
//
//   forward 0   forward 1   ...   backward 1   backward 0
//   [============= kKept of 0 ==================]
//   [= kForward]                               [= kBackward]
//
// Recomputation trades time for memory, with the same bits:
//
//   none        kRestored lives as kKept does.
//   selective   kRestored lives in forward, and again in backward, where restore() fills it again
//               from what is kept. A block marks what is cheap to do again: results of norms and
//               of activation functions.
//   full        kKept and kRestored live in forward, and again in backward, where forward() is run
//               again from the block's input, with pass.out absent.
//
// The two places of a tensor that lives twice may differ. A block that draws random numbers takes
// them from seed, step and position alone (base/math/counter_rng.h), so it draws the same ones
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/batch.h"
#include "lockstep/nn/context_axis.h"
#include "lockstep/nn/context_slice.h"
#include "lockstep/nn/expert_axis.h"
#include "lockstep/nn/expert_group.h"
#include "lockstep/nn/tensor_axis.h"
#include "lockstep/nn/tensor_shard.h"
#include "lockstep/nn/token_slice.h"
#include "lockstep/nn/weight_gradients.h"
#include "lockstep/ops/ops.h"
#include "lockstep/plan/arithmetic.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

using plan::Recompute;

// The initial values of a parameter: a normal distribution with this mean and standard deviation;
// constant if `stddev` is 0.
struct Initial {
  double mean = 0;
  double stddev = 0;
  friend bool operator==(const Initial&, const Initial&) = default;
};

struct ParameterSpec {
  std::string name;  // within the block: "attention.qkv.weight"
  Shape shape;
  Initial initial;
  bool decays = true;  // has weight decay; biases and norms do not
  // The full name of the parameter of an earlier block that this is tied to; empty: not tied.
  std::string tied_to;
  // Whether backward, or recomputation before it, reads its values.
  bool backward_reads = true;
  // How many rows a sparse gradient of it has, which sparse_gradient() returns; 0: it is dense.
  std::int64_t sparse_rows = 0;
  // Backward overwrites its gradient where Pass::new_gradients is set.
  bool overwrites = false;
  // Which part of a logical parameter `shape` is, where ranks divide it.
  TensorShard shard = {};
  friend bool operator==(const ParameterSpec&, const ParameterSpec&) = default;
};

enum class Life : std::uint8_t {
  kKept,      // from forward to backward
  kRestored,  // like kKept, but may be recomputed from kept tensors
  kForward,   // within forward
  kBackward,  // within backward
};

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  Life life = Life::kKept;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

struct BlockSpec {
  std::vector<ParameterSpec> parameters;
  std::vector<TensorSpec> tensors;
  // The tensors that it quantizes, each with a scaling of its own (ops::kScaling).
  std::vector<Float8> scaled = {};
  std::size_t scratch = 0;  // the most that one of its operations needs (Ops::scratch)
  // Bytes for Pass::weight_gradients.
  std::size_t weight_inputs = 0;
  double forward_flops = 0;  // of matrix products; without what recomputation adds
  double backward_flops = 0;
  double recompute_flops = 0;  // of restore(), or of forward() run again, as the setup has it
  // What a rank of a tensor group sends in forward and backward of training, at least
  // (comm/least_bytes.h).
  std::uint64_t tensor_bytes = 0;
  // The same of a context group.
  std::uint64_t context_bytes = 0;
  // The same of an expert group, if tokens choose all experts equally often.
  std::uint64_t expert_bytes = 0;
  // The group whose ranks divide the parameters of this block, each with experts of its own; tied
  // ones are held by all. Size 1: all workers hold the same parameters.
  ExpertGroup experts = {};
  // The parameters, within the block, that other ranks of that group hold.
  std::vector<std::string> elsewhere = {};
  // Its forward waits for numbers of its device (Pass::host_counts), so that it cannot be captured.
  bool reads_back = false;
  friend bool operator==(const BlockSpec&, const BlockSpec&) = default;
};

// Settings that hold for a whole run.
struct Setup {
  BatchShape shape;              // of what this rank has of the sequences
  DType dtype = DType::kF32;     // of activations and parameters
  DType gradient = DType::kF32;  // of parameters' gradients
  bool fp8 = false;              // linear layers of blocks multiply in 8 bits, in training
  ContextGroup context = {};     // which tokens of the sequences this rank has
  // How many rows an expert takes at most (nn/parts/experts.h); 0: all.
  double expert_capacity = 0;
  // The lengths of the slices in which sequences go through a pipeline (nn/token_slice.h), and the
  // one that a computation has; empty: sequences are whole.
  std::vector<std::int64_t> slices = {};
  TokenSlice slice = {};
  Recompute recompute = Recompute::kNone;
  // Modes of the blocks, if they differ; empty: `recompute` for all. A block gets its own Setup and
  // reads only `recompute`.
  std::vector<Recompute> recompute_of_blocks = {};

  // Of a computation of one slice.
  Setup of_slice(std::size_t index) const {
    Setup part = *this;
    part.shape.sequence = slices.at(index);
    part.slice.of = shape.sequence;
    for (std::size_t i = 0; i < index; ++i) part.slice.first += slices[i];
    return part;
  }

  Setup of(std::size_t block) const {
    return {.shape = shape,
            .dtype = dtype,
            .gradient = gradient,
            .fp8 = fp8,
            .context = context,
            .expert_capacity = expert_capacity,
            .slices = slices,
            .slice = slice,
            .recompute = recompute_of_blocks.empty() ? recompute : recompute_of_blocks.at(block)};
  }
};

// What flows between blocks: the residual stream, and in a decoder the encoder's output, which
// every block passes on unchanged. Gradients of x are overwritten; gradients of memory start at
// zero and are accumulated by the blocks that read it. Models that balance experts send counts this
// way instead, which layers add to (nn/parts/expert_counts.h).
struct Flow {
  Tensor x;
  Tensor memory;
};

// Is called by a block in backward (Pass::finished, Pass::accumulated).
class FinishedListener {
 public:
  virtual void finished(std::size_t parameter) = 0;
  virtual void accumulated(std::size_t parameter, std::int64_t rows) = 0;

 protected:
  ~FinishedListener() = default;
};

// Numbers of rows that forward reads back where its tensors lie on a GPU, because later operations
// have shapes by them. Kept from forward to backward of one micro-batch.
struct HostCounts {
  std::vector<std::int32_t> routed;    // nn/parts/experts.h: rows of each expert
  std::vector<std::int32_t> received;  // with an expert group: nn/expert_axis.h
};

// The arguments of one forward or backward. The spans are in the order of the block's spec.
struct Pass {
  Ops& ops;
  const Setup& setup;
  const Batch& batch;
  std::uint64_t seed = 0;  // of this block
  ops::Scalar step = 0;
  std::uint64_t first_sequence = 0;  // of this micro-batch among those of the step, in all ranks
  bool training = true;              // false: no dropout, and nothing is kept
  bool separate_sparse_gradient = false;  // in backward: sparse_gradient() returns it instead
  ops::Scalar loss_factor = 1;            // gradients are those of loss_factor * the sum of losses
  std::span<const Tensor> parameters;
  std::span<const Tensor> gradients;  // of the parameters; in backward
  // The gradients hold nothing yet. Only set for a block that overwrites those of all its
  // parameters.
  bool new_gradients = false;
  std::span<const Tensor> tensors;
  // Of the spec's scaled: f32 [tensors, ops::kScaling] and [tensors].
  Tensor scaling = {};
  Tensor amax = {};
  bool calibrates = false;  // scales that are not known yet are to be found
  Flow in;
  Flow out;       // in forward; absent when forward is run again
  Flow dout;      // in backward; its x may be overwritten, because it is not read afterwards
  Flow din;       // in backward
  Tensor losses;  // f32 [tokens]: written by the last block
  Tensor logits;  // optional: the last block writes them too, [tokens, classes] of the compute type
  FinishedListener* listener = nullptr;  // in backward
  // In backward, if gradients of weights are computed later: a block may leave those of its linear
  // layers to it. nullptr: backward computes all of them.
  WeightGradients* weight_gradients = nullptr;
  TensorAxis* tensor = nullptr;       // of blocks that are made for a tensor group
  ContextAxis* context = nullptr;     // of a setup with a context group
  ExpertAxis* experts = nullptr;      // of blocks that are made for an expert group
  HostCounts* host_counts = nullptr;  // of blocks that read back

  // Backward has finished with a parameter, by its index in the spec: later operations neither add
  // to its gradient nor read its value. So it can be reduced and updated during the rest of
  // backward. At most once for each; the others are finished when backward returns.
  void finished(std::size_t parameter) const {
    if (listener != nullptr) listener->finished(parameter);
  }
  // Rows [0, rows) of this gradient are final, of a tied parameter too. The block may still read
  // the parameter itself, so it can be reduced but not yet updated. `rows` grows from call to call.
  void accumulated(std::size_t parameter, std::int64_t rows) const {
    if (listener != nullptr) listener->accumulated(parameter, rows);
  }
};

class Decoding;

// A gradient with few nonzero rows: rows[i] is added to row tokens[i].
struct SparseGradient {
  std::size_t parameter = 0;  // in the order of the spec
  Tensor tokens;              // i32 [tokens]
  Tensor rows;                // [tokens, width] of the compute type
};

class Block {
 public:
  virtual ~Block() = default;

  virtual std::string name() const = 0;  // unique in its model: "layer.3"
  // The name from which the seed of its random numbers is derived.
  virtual std::string draws_as() const { return name(); }
  // The shape of out.x; [0] for the last block, which computes losses.
  virtual Shape output(const Setup& setup) const = 0;
  // The shape of out.memory for the one block that makes it; all later blocks can read it.
  virtual Shape memory(const Setup& /*setup*/) const { return {0}; }
  // Pure: equal setups give equal specs.
  virtual BlockSpec spec(const Setup& setup, const Ops& ops) const = 0;

  virtual void forward(const Pass& pass) = 0;
  // Fills the kRestored tensors from the kept ones and the input. Only called in backward with
  // selective recomputation.
  virtual void restore(const Pass& pass) = 0;
  // When `training`, the last block may compute loss and gradients together in backward: losses are
  // read after its backward.
  virtual void backward(const Pass& pass) = 0;

  // The sparse part of a gradient that backward skipped because pass.separate_sparse_gradient was
  // set, for a parameter with sparse_rows. Its tokens are known from the start.
  virtual std::optional<SparseGradient> sparse_gradient(const Pass& /*pass*/) const {
    return std::nullopt;
  }

  // The width of Batch::inputs that it reads; 0: it reads tokens.
  virtual std::int64_t features() const { return 0; }

  // Its implementation of text generation (nn/generate/decoding.h); nullptr if it has none.
  virtual const Decoding* decoding() const { return nullptr; }
};

}  // namespace lockstep::nn
