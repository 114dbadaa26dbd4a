// Builds a BlockSpec: parameters and tensors in order, and matrix products with their scratch
// memory and FLOPs.
//
// Absent parameters and tensors (a bias, a statistic of a norm) are declared without elements, so
// that indices do not change.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/block.h"

namespace lockstep::nn {

class Declaration {
 public:
  // Both outlive the declaration.
  Declaration(const Setup& setup, const Ops& ops) : setup_(setup), ops_(ops) {}

  const Setup& setup() const { return setup_; }
  const Ops& ops() const { return ops_; }

  // A matrix [out, in] of normal numbers.
  void weight(std::string name, std::int64_t out, std::int64_t in, double stddev);
  // The same with a sparse gradient of `sparse_rows` rows.
  void table(std::string name, std::int64_t entries, std::int64_t width, double stddev,
             std::int64_t rows);
  // Zeros; no elements where it is not `given`.
  void bias(std::string name, std::int64_t width, bool given = true);
  // Ones.
  void gain(std::string name, std::int64_t width);
  void tied_weight(std::string name, std::int64_t out, std::int64_t in, std::string owner);
  // The parameter that was declared last is tied to one of an earlier block, unless there is none.
  void tie(std::string owner) { spec_.parameters.back().tied_to = std::move(owner); }
  // The parameters of this block are experts of this rank, and other ranks hold those.
  void divide_experts(const ExpertGroup& group, std::vector<std::string> elsewhere) {
    spec_.experts = group;
    spec_.elsewhere = std::move(elsewhere);
  }
  void reads_back() { spec_.reads_back = true; }
  // Backward makes the gradient of the parameter that was declared last by one operation, which
  // overwrites it where Pass::new_gradients says so.
  void overwrites_gradient() { spec_.parameters.back().overwrites = true; }
  // The parameter that was declared last is a shard.
  void shard(TensorShard shard) { spec_.parameters.back().shard = std::move(shard); }
  // Backward does not read the parameter that was declared last.
  void read_in_forward_only() { spec_.parameters.back().backward_reads = false; }

  // Of the compute type.
  void activation(std::string name, const Shape& shape, Life life);
  void statistic(std::string name, const Shape& shape, Life life);
  // Within backward, in the type of gradients.
  void gradient(std::string name, const Shape& shape);
  void indices(std::string name, const Shape& shape, Life life);
  // In 8 bits.
  void bytes(std::string name, const Shape& shape, Life life);
  // A tensor that is quantized.
  void scaled(Float8 format) { spec_.scaled.push_back(format); }

  // A linear layer: its scratch memory and FLOPs. `again`: whether a recomputed forward runs it,
  // which is not needed if only the block's output depends on it. `times`: how often the block runs
  // it.
  void linear(std::int64_t rows, std::int64_t in, std::int64_t out, bool again = true,
              std::int64_t times = 1);
  // Linear layers with `rows` rows together, each with up to `most`, in pieces
  // (nn/parts/row_pieces.h).
  void linear_in_pieces(std::int64_t rows, std::int64_t most, std::int64_t in, std::int64_t out,
                        bool again = true);
  // Scratch memory for the gradient of a part of a linear layer's outputs.
  void linear_part(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t of_outputs);
  // A rank of a group sums a tensor of that many elements over the group, or gathers or scatters
  // one; `again`: also when forward is run again.
  void sums(std::int64_t elements, DType dtype, const TensorGroup& group, bool again = false);
  void gathers(std::int64_t elements, DType dtype, const TensorGroup& group, bool again = false);
  // A rank of a context group sends that many bytes in forward, or in backward.
  void sends_in_forward(std::uint64_t bytes);
  void sends_in_backward(std::uint64_t bytes) { spec_.context_bytes += bytes; }
  // A rank sends that many bytes to its expert group, in all of forward and backward.
  void sends_to_experts(std::uint64_t bytes) { spec_.expert_bytes += bytes; }
  void attention(const ops::AttentionShape& shape);
  // Its two halves: FLOPs, and the scratch memory of one call.
  void attention_flops(const ops::AttentionShape& shape);
  void attention_scratch(const ops::AttentionShape& shape);
  void norm(std::int64_t rows, std::int64_t width);
  void embedding(std::int64_t rows, std::int64_t width, std::int64_t entries);

  BlockSpec take() { return std::move(spec_); }

 private:
  void product(double flops, bool again);

  const Setup& setup_;
  const Ops& ops_;
  BlockSpec spec_;
};

}  // namespace lockstep::nn
