// Blocks that say nothing of what they have finished with, as one that a user wrote may, or that
// say it otherwise than ours do.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/model.h"

namespace lockstep::nn {

// A block of another model, whose backward is given a pass that was changed.
class ChangedBlock : public Block {
 public:
  using Change = std::function<void(Block& block, const Pass& pass)>;

  ChangedBlock(std::shared_ptr<Model> of, std::size_t index, Change backward)
      : of_(std::move(of)), block_(of_->block(index)), backward_(std::move(backward)) {}

  std::string name() const override { return block_.name(); }
  Shape output(const Setup& setup) const override { return block_.output(setup); }
  Shape memory(const Setup& setup) const override { return block_.memory(setup); }
  BlockSpec spec(const Setup& setup, const Ops& ops) const override {
    return block_.spec(setup, ops);
  }
  void forward(const Pass& pass) override { block_.forward(pass); }
  void restore(const Pass& pass) override { block_.restore(pass); }
  void backward(const Pass& pass) override { backward_(block_, pass); }
  std::optional<SparseGradient> sparse_gradient(const Pass& pass) const override {
    return block_.sparse_gradient(pass);
  }

 protected:
  Block& block() { return block_; }
  const Block& block() const { return block_; }

 private:
  std::shared_ptr<Model> of_;
  Block& block_;
  Change backward_;
};

inline Model changed(Model model, const ChangedBlock::Change& backward) {
  const auto all = std::make_shared<Model>(std::move(model));
  std::vector<std::unique_ptr<Block>> blocks;
  for (std::size_t i = 0; i < all->size(); ++i) {
    blocks.push_back(std::make_unique<ChangedBlock>(all, i, backward));
  }
  return {all->name(), std::move(blocks)};
}

inline Pass quiet(const Pass& pass) {
  Pass copy = pass;
  copy.listener = nullptr;
  return copy;
}

inline Model quiet(Model model) {
  return changed(std::move(model),
                 [](Block& block, const Pass& pass) { block.backward(quiet(pass)); });
}

}  // namespace lockstep::nn
