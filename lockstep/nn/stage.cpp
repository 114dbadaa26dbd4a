#include "lockstep/nn/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/plan/pipeline/balance.h"

namespace lockstep::nn {
namespace {

double flops_of(const BlockSpec& spec) { return spec.forward_flops + spec.backward_flops; }

// Full names of all parameters, with the block and the name of the one that holds its elements.
struct Holder {
  std::size_t block = 0;
  std::string name;
};
using Holders = std::map<std::string, Holder, std::less<>>;

std::string full_parameter_name(const Model& whole, std::size_t block, const ParameterSpec& spec) {
  return whole.block(block).name() + "." + spec.name;
}

Holders holders_of(const Model& whole, const std::vector<BlockSpec>& specs) {
  Holders holders;
  for (std::size_t block = 0; block < specs.size(); ++block) {
    for (const ParameterSpec& spec : specs[block].parameters) {
      const std::string name = full_parameter_name(whole, block, spec);
      const auto owner = holders.find(spec.tied_to);
      // Ties are checked where the whole flat buffer is laid out.
      holders[name] = owner == holders.end() ? Holder{block, name} : owner->second;
    }
  }
  return holders;
}

class Cutter {
 public:
  Cutter(const Model& whole, const std::vector<BlockSpec>& specs, const Cut& cut)
      : whole_(whole), specs_(specs), shape_(cut.shape), holders_(holders_of(whole, specs)) {
    for (std::size_t i = 0; i < cut.blocks.size(); ++i) {
      virtual_stages_.insert(virtual_stages_.end(), static_cast<std::size_t>(cut.blocks[i]),
                             static_cast<int>(i));
    }
  }

  StageParts cut(int stage) const {
    StageParts parts{.stages = shape_.stages, .stage = stage};
    for (const std::size_t block : read_by(stage)) {
      if (stage_of_block(block) != stage) parts.blocks.push_back(block);
    }
    parts.copies = parts.blocks.size();
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      const int wanted = shape_.virtual_stage(stage, chunk);
      std::size_t length = 0;
      for (std::size_t block = 0; block < specs_.size(); ++block) {
        if (virtual_stages_[block] != wanted) continue;
        parts.blocks.push_back(block);
        ++length;
      }
      parts.lengths.push_back(length);
    }
    add_shared(parts);
    for (std::size_t block = 0; block < specs_.size(); ++block) {
      for (const ParameterSpec& spec : specs_[block].parameters) {
        const std::string name = full_parameter_name(whole_, block, spec);
        const Holder& holder = holders_.find(name)->second;
        if (holder.name != name) parts.owners[name] = holder.name;
        const bool here = std::ranges::find(parts.blocks, holder.block) != parts.blocks.end();
        if (!here) parts.elsewhere.insert(holder.name);
      }
      for (const std::string& parameter : specs_[block].elsewhere) {
        parts.elsewhere.insert(whole_.block(block).name() + "." + parameter);
      }
    }
    return parts;
  }

 private:
  int stage_of_block(std::size_t block) const { return shape_.stage_of(virtual_stages_[block]); }

  // The blocks whose parameters the blocks of a stage work with, ascending.
  std::set<std::size_t> read_by(int stage) const {
    std::set<std::size_t> read;
    for (std::size_t block = 0; block < specs_.size(); ++block) {
      if (stage_of_block(block) != stage) continue;
      read.insert(block);
      for (const ParameterSpec& spec : specs_[block].parameters) {
        read.insert(holders_.find(full_parameter_name(whole_, block, spec))->second.block);
      }
    }
    return read;
  }

  void add_shared(StageParts& parts) const {
    for (std::size_t block = 0; block < specs_.size(); ++block) {
      SharedBlock shared;
      for (int stage = 0; stage < shape_.stages; ++stage) {
        if (read_by(stage).contains(block)) shared.holders.push_back(stage);
      }
      if (shared.holders.size() < 2) continue;
      const auto here = std::ranges::find(parts.blocks, block);
      if (here != parts.blocks.end()) {
        shared.block = static_cast<std::size_t>(here - parts.blocks.begin());
      }
      parts.shared.push_back(std::move(shared));
    }
  }

  const Model& whole_;
  const std::vector<BlockSpec>& specs_;
  plan::PipelineShape shape_;
  std::vector<int> virtual_stages_;
  Holders holders_;
};

}  // namespace

Cut balanced_cut(const Model& whole, const Setup& setup, const Ops& ops,
                 const plan::PipelineShape& shape) {
  const std::vector<BlockSpec> specs = specs_of(whole, setup, ops);
  const int count = shape.virtual_stages();
  if (count > static_cast<int>(specs.size())) {
    fail(ErrorCode::kInvalidArgument,
         "parallel.pipeline = {}{} needs a model of {} blocks or more; '{}' has {} (embedding, "
         "layers and head), so take parallel.pipeline = {} or less",
         shape.stages,
         shape.chunks > 1 ? fmt::format(" with parallel.pipeline_chunks = {}", shape.chunks) : "",
         count, whole.name(), specs.size(), specs.size() / static_cast<std::size_t>(shape.chunks));
  }
  std::vector<double> costs;
  for (const BlockSpec& spec : specs) costs.push_back(flops_of(spec));
  Cut cut{.shape = shape,
          .blocks = plan::balanced_stages(costs, count),
          .flops = std::vector<double>(static_cast<std::size_t>(shape.stages))};
  std::size_t block = 0;
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < cut.blocks[static_cast<std::size_t>(i)]; ++k) {
      cut.flops[static_cast<std::size_t>(shape.stage_of(i))] += costs[block++];
    }
  }
  return cut;
}

Model stage_of(const Model& whole, const Setup& setup, const Ops& ops, const Cut& cut, int stage) {
  const std::vector<BlockSpec> specs = specs_of(whole, setup, ops);
  return {whole, setup, Cutter(whole, specs, cut).cut(stage)};
}

std::uint64_t message_bytes(const Model& stage, const Setup& setup) {
  const auto bytes = [&](const Shape& shape) { return Tensor::bytes_of(setup.dtype, shape); };
  std::uint64_t sent = 0;
  for (const Chunk& chunk : stage.chunks()) {
    std::size_t memory = chunk.maker == nullptr ? 0 : bytes(chunk.maker->memory(setup));
    if (chunk.before != nullptr) sent += bytes(chunk.before->output(setup)) + memory;
    if (chunk.makes_losses) continue;
    for (std::size_t i = chunk.first; i < chunk.end; ++i) {
      memory = std::max(memory, bytes(stage.block(i).memory(setup)));
    }
    sent += bytes(stage.block(chunk.end - 1).output(setup)) + memory;
  }
  return sent;
}

}  // namespace lockstep::nn
