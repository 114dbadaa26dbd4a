// The unit of everything: a model is a list of Blocks (embedding, layers, head), each with an
// explicit forward and backward. Sharding gathers and frees per block, recomputation re-runs a
// block, offload moves a block's states, a pipeline stage is a run of blocks. None of them knows
// what a transformer is, and a block knows none of them.
//
// A block owns no memory. It declares what it needs as shapes (spec()), before any memory exists;
// whoever runs it lays everything out, and hands views over in a Pass. What a block declares, by
// lifetime:
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
#include "lockstep/ops/ops.h"
#include "lockstep/plan/arithmetic.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

using plan::Recompute;

// How a parameter begins: normal numbers of that standard deviation around that mean; constant at
// 0.
struct Initial {
  double mean = 0;
  double stddev = 0;
  friend bool operator==(const Initial&, const Initial&) = default;
};

struct ParameterSpec {
  std::string name;  // within the block: "attention.qkv.weight"
  Shape shape;
  Initial initial;
  bool decays = true;  // weight decay pulls it; biases and norms are left alone
  // The full name of a parameter of an earlier block that this is a view of; empty: its own.
  std::string tied_to;
  // Whether backward, and what is made again before it, look at its values.
  bool backward_reads = true;
  // How many rows a sparse gradient of it has, which sparse_gradient() returns; 0: it is dense.
  std::int64_t sparse_rows = 0;
  friend bool operator==(const ParameterSpec&, const ParameterSpec&) = default;
};

enum class Life : std::uint8_t {
  kKept,      // from forward to backward
  kRestored,  // as kKept, but may be made again from what is kept
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
  std::size_t scratch = 0;   // the most that one of its operations needs (Ops::scratch)
  double forward_flops = 0;  // of matrix products; without what recomputation adds
  double backward_flops = 0;
  double recompute_flops = 0;  // of restore(), or of forward() run again, as the setup has it
  friend bool operator==(const BlockSpec&, const BlockSpec&) = default;
};

// What holds for a whole run.
struct Setup {
  BatchShape shape;
  DType dtype = DType::kF32;     // of activations and of the parameters that are computed with
  DType gradient = DType::kF32;  // of parameters' gradients
  bool fp8 = false;              // linear layers of blocks multiply in 8 bits, in training
  Recompute recompute = Recompute::kNone;
  // Of each block, where they differ; empty: `recompute` of all. A block is only ever given its own
  // setup and looks at `recompute`.
  std::vector<Recompute> recompute_of_blocks = {};

  Setup of(std::size_t block) const {
    return {.shape = shape,
            .dtype = dtype,
            .gradient = gradient,
            .fp8 = fp8,
            .recompute = recompute_of_blocks.empty() ? recompute : recompute_of_blocks.at(block)};
  }
};

// What blocks hand to each other: the rows of the residual stream, and in a decoder the encoder's
// result, which every block hands on as it is. Gradients of x are overwritten; those of memory are
// added up by the blocks that read it, beginning at zero.
struct Flow {
  Tensor x;
  Tensor memory;
};

// Hears from a block in backward what it has finished with (Pass::finished, Pass::accumulated).
class FinishedListener {
 public:
  virtual void finished(std::size_t parameter) = 0;
  virtual void accumulated(std::size_t parameter, std::int64_t rows) = 0;

 protected:
  ~FinishedListener() = default;
};

// All that a block works with in one forward or backward. The spans follow the order of its spec.
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
  std::span<const Tensor> tensors;
  // Of the spec's scaled: f32 [tensors, ops::kScaling] and [tensors].
  Tensor scaling = {};
  Tensor amax = {};
  bool calibrates = false;  // scales that are not known yet are to be found
  Flow in;
  Flow out;       // in forward; absent when forward is run again
  Flow dout;      // in backward; its x may be overwritten, for no one reads it afterwards
  Flow din;       // in backward
  Tensor losses;  // f32 [tokens]: written by the last block
  Tensor logits;  // optional: the last block writes them too, [tokens, classes] of the compute type
  FinishedListener* listener = nullptr;  // in backward

  // Backward has finished with a parameter, by its index in the spec: what it will still queue
  // neither adds to its gradient nor reads its value. So that can be exchanged and updated while
  // backward goes on with the others. At most once for each; what nothing was said of is finished
  // when backward returns.
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

// The gradient of a parameter of which few rows take part: rows[i] is added to row tokens[i].
struct SparseGradient {
  std::size_t parameter = 0;  // in the order of the spec
  Tensor tokens;              // i32 [tokens]
  Tensor rows;                // [tokens, width] of the compute type
};

class Block {
 public:
  virtual ~Block() = default;

  virtual std::string name() const = 0;  // unique in its model: "layer.3"
  // The name that the seed of its random numbers is made of.
  virtual std::string draws_as() const { return name(); }
  // The shape of out.x; absent ([0]) for the last block, which makes losses.
  virtual Shape output(const Setup& setup) const = 0;
  // The shape of out.memory for the one block that makes it: a pass hands it to all blocks behind.
  virtual Shape memory(const Setup& /*setup*/) const { return {0}; }
  // Pure: equal setups give equal specs.
  virtual BlockSpec spec(const Setup& setup, const Ops& ops) const = 0;

  virtual void forward(const Pass& pass) = 0;
  // Fills the kRestored tensors from the kept ones and the input. Only called in backward with
  // selective recomputation.
  virtual void restore(const Pass& pass) = 0;
  // A last block may leave its work to backward when `training`, and compute loss and gradients in
  // one go: losses are read after its backward.
  virtual void backward(const Pass& pass) = 0;

  // The sparse part of a gradient that backward skipped because pass.separate_sparse_gradient was
  // set, for a parameter with sparse_rows. Its tokens are known from the start.
  virtual std::optional<SparseGradient> sparse_gradient(const Pass& /*pass*/) const {
    return std::nullopt;
  }

  // Numbers that it reads of every item of Batch::inputs; 0: it reads tokens.
  virtual std::int64_t features() const { return 0; }

  // How it takes part in generating text (nn/generate/decoding.h), or nullptr where it cannot.
  virtual const Decoding* decoding() const { return nullptr; }
};

}  // namespace lockstep::nn
