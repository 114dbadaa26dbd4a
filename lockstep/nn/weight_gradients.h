// Gradients of weights that backward leaves for later (plan/pipeline/step_schedule.h: zero bubble).
//
// The stage before waits for the gradient of a block's input; nobody waits for those of its
// weights. A linear layer's is a product of its input and the gradient of its output. add() copies
// both, because the rest of the block's backward may overwrite them, and run() computes the
// products in the same order, with the same bits. Everything else of backward (norms, tables, the
// head) is done at once.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/ops/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

class WeightGradients {
 public:
  // Memory for the copies of one block: BlockSpec::weight_inputs bytes; absent: it leaves nothing.
  explicit WeightGradients(const Tensor& memory) : memory_(memory) {}

  // The bytes of one linear layer with `rows` tokens.
  static std::size_t bytes(std::int64_t rows, std::int64_t in, std::int64_t out, DType dtype);

  // Whether the block may leave anything.
  bool has_memory() const { return memory_.data() != nullptr; }
  // Throws Error(kInvalidArgument) where the block has declared less.
  void add(Ops& ops, const ops::LinearBackwardWeight& call);
  // Those since the last run().
  void run(Ops& ops);

 private:
  Tensor copied(Ops& ops, const Tensor& from);

  Tensor memory_;
  std::size_t used_ = 0;
  std::vector<ops::LinearBackwardWeight> calls_;
};

}  // namespace lockstep::nn
