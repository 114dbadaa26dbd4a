#include "lockstep/nn/model.h"

#include <set>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::nn {

Model::Model(std::string name, std::vector<std::unique_ptr<Block>> blocks)
    : name_(std::move(name)), blocks_(std::move(blocks)) {
  if (blocks_.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "the model '{}' has no blocks; it needs one that makes losses", name_);
  }
  std::set<std::string> names;
  for (const auto& block : blocks_) {
    if (!names.insert(block->name()).second) {
      fail(ErrorCode::kInvalidArgument,
           "two blocks of the model '{}' are called '{}'; parameters are named after their block, "
           "so each needs a name of its own",
           name_, block->name());
    }
  }
}

std::vector<BlockSpec> specs_of(const Model& model, const Setup& setup, const Ops& ops) {
  if (!setup.recompute_of_blocks.empty() && setup.recompute_of_blocks.size() != model.size()) {
    fail(ErrorCode::kInvalidArgument,
         "the setup has recompute modes for {} blocks, but the model '{}' has {}",
         setup.recompute_of_blocks.size(), model.name(), model.size());
  }
  std::vector<BlockSpec> specs;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const Block& block = model.block(i);
    const bool last = i + 1 == model.size();
    const bool hands_on = block.output(setup).elements() > 0;
    if (hands_on == last) {
      fail(ErrorCode::kInvalidArgument, "block '{}' of the model '{}' {}", block.name(),
           model.name(),
           last ? "is the last and hands something on; the last block makes losses"
                : "hands nothing on; only the last block may, the one that makes losses");
    }
    specs.push_back(block.spec(setup.of(i), ops));
  }
  return specs;
}

}  // namespace lockstep::nn
