#include "lockstep/nn/parameters/flat_parameters.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep::nn {
namespace {

constexpr std::size_t aligned(std::size_t elements,
                              std::size_t alignment = FlatParameters::kAlignment) {
  return (elements + alignment - 1) / alignment * alignment;
}

std::string full_name(const Model& model, std::size_t block, const ParameterSpec& parameter) {
  return model.block(block).name() + "." + parameter.name;
}

}  // namespace

FlatParameters::FlatParameters(const Model& model, std::span<const BlockSpec> specs,
                               std::size_t block_multiple)
    : ranges_(specs.size()),
      places_(specs.size()),
      elsewhere_(model.elsewhere()),
      has_experts_(specs.size()) {
  for (std::size_t block = specs.size(); block-- > 0;) {
    const std::vector<ParameterSpec>& declared = specs[block].parameters;
    for (const std::string& parameter : specs[block].elsewhere) {
      elsewhere_.insert(model.block(block).name() + "." + parameter);
    }
    has_experts_[block] = specs[block].experts.size > 1;
    if (has_experts_[block]) expert_group_ = specs[block].experts;
    places_[block].assign(declared.size(), -1);
    ranges_[block].first = elements_;
    for (const bool decays : {true, false}) {
      for (std::size_t index = declared.size(); index-- > 0;) {
        const ParameterSpec& spec = declared[index];
        const bool has_place = spec.tied_to.empty() && spec.shape.elements() > 0;
        if (!has_place || spec.decays != decays) continue;
        const std::string name = full_name(model, block, spec);
        if (!names_.emplace(name, parameters_.size()).second) {
          fail(ErrorCode::kInvalidArgument, "two parameters are called '{}'", name);
        }
        if (!spec.shard.is_replicated()) tensor_group_ = spec.shard.group;
        places_[block][index] = static_cast<int>(parameters_.size());
        parameters_.push_back(
            {name, block, elements_, spec.shape, decays, spec.initial, spec.shard});
        elements_ += aligned(spec.shape.elements());
        count_ += spec.shape.elements();
      }
    }
    ranges_[block].elements = aligned(elements_ - ranges_[block].first, block_multiple);
    elements_ = ranges_[block].end();
  }
  // Owners stand in earlier blocks, so their own ties are resolved when they are asked for.
  for (std::size_t block = 0; block < specs.size(); ++block) {
    for (std::size_t index = 0; index < specs[block].parameters.size(); ++index) {
      const ParameterSpec& spec = specs[block].parameters[index];
      if (spec.tied_to.empty()) continue;
      const std::string name = full_name(model, block, spec);
      const auto owner = names_.find(model.owner_of(spec.tied_to));
      if (owner == names_.end() || parameters_[owner->second].block >= block) {
        fail(ErrorCode::kInvalidArgument,
             "'{}' is tied to '{}', which is not a parameter of an earlier block", name,
             spec.tied_to);
      }
      if (parameters_[owner->second].shape != spec.shape) {
        fail(ErrorCode::kInvalidArgument, "'{}' is {} and is tied to '{}', which is {}", name,
             spec.shape.text(), spec.tied_to, parameters_[owner->second].shape.text());
      }
      if (!names_.emplace(name, owner->second).second) {
        fail(ErrorCode::kInvalidArgument, "two parameters are called '{}'", name);
      }
      places_[block][index] = static_cast<int>(owner->second);
    }
  }
}

std::span<const FlatParameter> FlatParameters::of(std::size_t block) const {
  const FlatRange whole = range(block);
  const auto at = [&](std::size_t offset) {
    return std::ranges::lower_bound(parameters_, offset, {}, &FlatParameter::offset);
  };
  return {at(whole.first), at(whole.end())};
}

std::vector<FlatRun> FlatParameters::runs(std::size_t block) const {
  const FlatRange whole = range(block);
  std::size_t decaying_end = whole.first;
  for (const FlatParameter& parameter : of(block)) {
    if (parameter.decays) decaying_end = parameter.offset + aligned(parameter.shape.elements());
  }
  std::vector<FlatRun> runs = {{{whole.first, decaying_end - whole.first}, true},
                               {{decaying_end, whole.end() - decaying_end}, false}};
  std::erase_if(runs, [](const FlatRun& run) { return run.range.elements == 0; });
  return runs;
}

const FlatParameter* FlatParameters::place(std::size_t block, std::size_t index) const {
  const int at = places_.at(block).at(index);
  return at < 0 ? nullptr : &parameters_[static_cast<std::size_t>(at)];
}

const FlatParameter& FlatParameters::find(std::string_view name) const {
  const auto found = names_.find(name);
  if (found == names_.end()) {
    std::vector<std::string_view> known;
    for (const auto& [each, index] : names_) known.push_back(each);
    fail(ErrorCode::kInvalidArgument, "unknown parameter '{}'{}", name, did_you_mean(name, known));
  }
  return parameters_[found->second];
}

Tensor FlatParameters::view(const Tensor& buffer, const FlatParameter& parameter) {
  const auto elements = static_cast<std::int64_t>(parameter.shape.elements());
  return buffer.slice(static_cast<std::int64_t>(parameter.offset), elements)
      .reshaped(parameter.shape);
}

}  // namespace lockstep::nn
