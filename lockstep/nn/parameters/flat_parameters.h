// The layout of all parameters of a model in one flat buffer.
//
// Parameters, their gradients and each state of an optimizer have the same positions, each in a
// tensor of its own type; so a position counts elements, not bytes. Every block has one contiguous
// range, in the order in which backward finishes them: the last block first. Buckets of gradients,
// shards and checkpoints are views of such flat buffers.
//
//   | head           | layer.1        | layer.0        | embedding    |
//                    ^              ^
//                    | decays | not |      two runs in each range
//
// In a range, parameters with weight decay come first, then the others, so that an optimizer needs
// two calls per block; within both runs the last declared parameter is first, because backward
// usually finishes it first. Every parameter begins at a multiple of 32 elements, which is 64 bytes
// or more in every type. The padding between them is zero and stays zero, because its gradients are
// zero. The same holds for the padding of a block's range for sharding.
//
// A tied parameter is a view of its owner and has no elements of its own: its gradient is final
// when the owner's block has finished backward. Parameters without elements are left out.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/nn/block.h"
#include "lockstep/nn/model.h"

namespace lockstep::nn {

struct FlatRange {
  std::size_t first = 0;
  std::size_t elements = 0;  // with padding
  std::size_t end() const { return first + elements; }
  friend bool operator==(const FlatRange&, const FlatRange&) = default;
};

struct FlatRun {
  FlatRange range;
  bool decays = true;
};

struct FlatParameter {
  std::string name;       // "layer.3.mlp.up.weight"
  std::size_t block = 0;  // that owns it
  std::size_t offset = 0;
  Shape shape;
  bool decays = true;
  Initial initial;
  TensorShard shard;  // of the logical parameter
};

class FlatParameters {
 public:
  static constexpr std::size_t kAlignment = 32;  // elements

  FlatParameters() = default;
  // Throws Error(kInvalidArgument) for a parameter that is named twice, and for one that is tied to
  // none of an earlier block or to one of another shape. Every block's range is a multiple of
  // `block_multiple` elements, itself one of the alignment.
  FlatParameters(const Model& model, std::span<const BlockSpec> specs,
                 std::size_t block_multiple = kAlignment);

  // Those with a place, in the order of their offsets.
  std::span<const FlatParameter> all() const { return parameters_; }
  std::size_t elements() const { return elements_; }  // of the flat buffer
  std::size_t count() const { return count_; }        // without padding: P

  std::size_t blocks() const { return ranges_.size(); }
  FlatRange range(std::size_t block) const { return ranges_.at(block); }
  // The tensor group that divides parameters of the model (nn/tensor_shard.h); of one rank where
  // none does.
  const TensorGroup& tensor_group() const { return tensor_group_; }
  // The expert group of the model, and whether a block's parameters are experts of this rank
  // (nn/expert_group.h).
  const ExpertGroup& expert_group() const { return expert_group_; }
  bool has_experts(std::size_t block) const { return has_experts_.at(block); }
  // Those of a block with a place, in the order of their offsets.
  std::span<const FlatParameter> of(std::size_t block) const;
  // The two runs of a block, without empty ones.
  std::vector<FlatRun> runs(std::size_t block) const;

  // The place of a block's parameter, by its index in the spec, or by its full name; that of the
  // owner where it is tied. place() returns nullptr for one without elements; find() throws
  // Error(kInvalidArgument), with the nearest name, for an unknown one.
  const FlatParameter* place(std::size_t block, std::size_t index) const;
  const FlatParameter& find(std::string_view name) const;
  // Whether other ranks, stages of a pipeline or of an expert group, hold a parameter of that name,
  // and this one does not.
  bool is_elsewhere(std::string_view name) const { return elsewhere_.contains(name); }

  // A parameter in a flat buffer of any type.
  static Tensor view(const Tensor& buffer, const FlatParameter& parameter);

 private:
  std::vector<FlatParameter> parameters_;
  std::vector<FlatRange> ranges_;
  std::vector<std::vector<int>> places_;  // per block and index in its spec; -1: no elements
  std::map<std::string, std::size_t, std::less<>> names_;
  std::set<std::string, std::less<>> elsewhere_;
  TensorGroup tensor_group_;
  ExpertGroup expert_group_;
  std::vector<bool> has_experts_;
  std::size_t elements_ = 0;
  std::size_t count_ = 0;
};

}  // namespace lockstep::nn
