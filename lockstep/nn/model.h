// A model: a named, ordered list of Blocks.
//
// The first block reads the batch, each other one what the block before it handed on, and the last
// makes the losses. A parameter's full name is "<block>.<parameter>": "layer.3.mlp.up.weight".
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/nn/block.h"

namespace lockstep::nn {

class Model {
 public:
  // Throws Error(kInvalidArgument) without blocks, and where two have the same name.
  Model(std::string name, std::vector<std::unique_ptr<Block>> blocks);

  const std::string& name() const { return name_; }
  std::size_t size() const { return blocks_.size(); }
  Block& block(std::size_t index) const { return *blocks_.at(index); }

 private:
  std::string name_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

// What every block declares, in order. Throws Error(kInvalidArgument) if the setup does not fit a
// block (a sequence longer than its positions) or has another number of blocks, if a block other
// than the last has no output, and if the last one has one.
std::vector<BlockSpec> specs_of(const Model& model, const Setup& setup, const Ops& ops);

}  // namespace lockstep::nn
