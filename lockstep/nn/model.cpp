#include "lockstep/nn/model.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::nn {

Model::Model(std::string name, std::vector<std::unique_ptr<Block>> blocks)
    : name_(std::move(name)) {
  if (blocks.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "the model '{}' has no blocks; it needs one that makes losses", name_);
  }
  std::set<std::string> names;
  for (auto& block : blocks) {
    if (!names.insert(block->name()).second) {
      fail(ErrorCode::kInvalidArgument,
           "two blocks of the model '{}' are called '{}'; parameters are named after their block, "
           "so each needs a name of its own",
           name_, block->name());
    }
    blocks_.push_back(std::move(block));
  }
  whole_ = blocks_;
  parts_.blocks.resize(blocks_.size());
  std::iota(parts_.blocks.begin(), parts_.blocks.end(), std::size_t{0});
  chunks_ = {{.first = 0, .end = blocks_.size()}};
}

Model::Model(const Model& whole, const Setup& setup, StageParts parts)
    : name_(whole.name_), whole_(whole.whole_), parts_(std::move(parts)) {
  for (const std::size_t index : parts_.blocks) blocks_.push_back(whole_.at(index));
  std::size_t first = parts_.copies;
  for (const std::size_t length : parts_.lengths) {
    Chunk chunk{.first = first, .end = first + length};
    const std::size_t number = parts_.blocks.at(first);
    if (number > 0) chunk.before = whole_[number - 1].get();
    for (std::size_t i = 0; i < number; ++i) {
      if (whole_[i]->memory(setup).elements() > 0) chunk.maker = whole_[i].get();
    }
    chunk.makes_losses = number + length == whole_.size();
    chunks_.push_back(chunk);
    first += length;
  }
}

const Chunk& Model::chunk_of(std::size_t block) const {
  const auto found =
      std::ranges::find_if(chunks_, [&](const Chunk& one) { return one.has(block); });
  if (found == chunks_.end()) {
    fail(ErrorCode::kInvalidArgument, "block {} of the model '{}' is not computed by this stage",
         block, name_);
  }
  return *found;
}

const std::string& Model::owner_of(const std::string& parameter) const {
  const auto found = parts_.owners.find(parameter);
  return found == parts_.owners.end() ? parameter : found->second;
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
    specs.push_back(block.spec(setup.of(i), ops));
    if (model.is_copy(i)) {
      specs.back() = {.parameters = std::move(specs.back().parameters), .tensors = {}};
      continue;
    }
    for (std::size_t slice = 0; slice < setup.slices.size(); ++slice) {
      const BlockSpec part = block.spec(setup.of(i).of_slice(slice), ops);
      specs.back().scratch = std::max(specs.back().scratch, part.scratch);
    }
    const Chunk& chunk = model.chunk_of(i);
    const bool last = chunk.makes_losses && i + 1 == chunk.end;
    const bool hands_on = block.output(setup).elements() > 0;
    if (hands_on == last) {
      fail(ErrorCode::kInvalidArgument, "block '{}' of the model '{}' {}", block.name(),
           model.name(),
           last ? "is the last and hands something on; the last block makes losses"
                : "hands nothing on; only the last block may, the one that makes losses");
    }
  }
  return specs;
}

}  // namespace lockstep::nn
