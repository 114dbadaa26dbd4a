// A model: a named, ordered list of Blocks, or the part of it that one pipeline stage has.
//
// The first block reads the batch, each other one what the block before it handed on, and the last
// makes the losses. A parameter's full name is "<block>.<parameter>": "layer.3.mlp.up.weight".
//
// A *chunk* is a run of blocks that is computed in one go. A whole model is one chunk. A stage
// (nn/stage.h) has one or more, in the order of the whole model, and reads and hands on at their
// ends:
//
//   whole model    | embedding | layer.0 | layer.1 | layer.2 | layer.3 | head |
//   stage 0 of 2   | embedding | layer.0 |         | layer.2 |                      two chunks
//   stage 1 of 2                         | layer.1 |         | layer.3 | head |     two chunks
//
// A parameter that is tied to one of another stage needs memory on both. The stage that lacks the
// owner has a *copy* of the owner's block: its parameters, gradients and optimizer states, nothing
// else. Copies come before the chunks, are never computed, and stay equal to their owner, because
// all holders add up their gradients before an update.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/nn/block.h"

namespace lockstep::nn {

struct Chunk {
  std::size_t first = 0;  // of its blocks in the model, without those at `end`
  std::size_t end = 0;
  const Block* before = nullptr;  // whose output it reads; nullptr: it reads the batch
  const Block* maker = nullptr;   // of the memory that comes with that; nullptr: none does
  bool makes_losses = true;       // else its output goes to the next chunk

  bool has(std::size_t block) const { return first <= block && block < end; }
};

// A block that several stages hold: one owns it, the others have copies.
struct SharedBlock {
  static constexpr std::size_t kElsewhere = static_cast<std::size_t>(-1);
  std::size_t block = kElsewhere;  // in the model of this stage, if it is one of them
  std::vector<int> holders;        // ascending
};

// What distinguishes a stage from a whole model.
struct StageParts {
  int stages = 1;
  int stage = 0;
  std::vector<std::size_t> blocks;   // in the whole model: copies, then those of the chunks
  std::size_t copies = 0;            // how many of these are copies
  std::vector<std::size_t> lengths;  // blocks of every chunk
  std::vector<SharedBlock> shared;   // of all stages
  // Full names of tied parameters of the whole model, with their owners'.
  std::map<std::string, std::string, std::less<>> owners;
  std::set<std::string, std::less<>> elsewhere;  // parameters of other stages alone
};

class Model {
 public:
  // Throws Error(kInvalidArgument) without blocks, and where two have the same name.
  Model(std::string name, std::vector<std::unique_ptr<Block>> blocks);
  // A stage of a whole model (nn/stage.h).
  Model(const Model& whole, const Setup& setup, StageParts parts);

  const std::string& name() const { return name_; }
  std::size_t size() const { return blocks_.size(); }
  Block& block(std::size_t index) const { return *blocks_.at(index); }

  const std::vector<Chunk>& chunks() const { return chunks_; }
  const Chunk& chunk_of(std::size_t block) const;
  bool is_copy(std::size_t block) const { return block < parts_.copies; }

  // Of a whole model: 1, 0, and nothing is shared or elsewhere.
  int stages() const { return parts_.stages; }
  int stage() const { return parts_.stage; }
  const std::vector<SharedBlock>& shared() const { return parts_.shared; }
  // The index of a block in the whole model.
  std::size_t number(std::size_t block) const { return parts_.blocks.at(block); }
  // The name of the parameter that a tied one shares; else the same name.
  const std::string& owner_of(const std::string& parameter) const;
  const std::set<std::string, std::less<>>& elsewhere() const { return parts_.elsewhere; }

 private:
  std::string name_;
  std::vector<std::shared_ptr<Block>> whole_;
  std::vector<std::shared_ptr<Block>> blocks_;
  StageParts parts_;
  std::vector<Chunk> chunks_;
};

// What every block declares, in order; of a copy, its parameters. Throws Error(kInvalidArgument) if
// the setup does not fit a block (a sequence longer than its positions) or has another number of
// blocks, if a block other than the last of the whole model has no output, and if that one has one.
std::vector<BlockSpec> specs_of(const Model& model, const Setup& setup, const Ops& ops);

}  // namespace lockstep::nn
