#include "lockstep/train/state_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

// A kind of state: what stands before the names of its tensors, and where it is in nn::States.
struct StateKind {
  std::string_view prefix;
  Tensor nn::States::*in;
};
constexpr StateKind kParameters{"", &nn::States::master};
constexpr StateKind kOfOptimizers[] = {{"moment/", &nn::States::moment},
                                       {"variance/", &nn::States::variance},
                                       {"velocity/", &nn::States::velocity}};

// The parameters, and what of an optimizer there is.
std::vector<StateKind> kinds_of(const nn::States& states) {
  std::vector<StateKind> kinds{kParameters};
  for (const StateKind& kind : kOfOptimizers) {
    if (ops::is_given(states.*kind.in)) kinds.push_back(kind);
  }
  return kinds;
}

std::string name_of(const StateKind& kind, const nn::FlatParameter& parameter) {
  return fmt::format("{}{}", kind.prefix, parameter.name);
}

bool is_parameter(std::string_view name) { return name.find('/') == std::string_view::npos; }

// Says what differs, the first few of it.
class Differences {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (++count_ <= kShown) texts_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  void fail_if_any() const {
    if (count_ == 0) return;
    const std::string more = count_ > kShown ? fmt::format("; and {} more", count_ - kShown) : "";
    fail(ErrorCode::kInvalidArgument,
         "the checkpoint is that of another model: {}{}. Its config.toml has the model.* keys that "
         "belong to it",
         fmt::join(texts_, "; "), more);
  }

 private:
  static constexpr std::size_t kShown = 3;
  std::vector<std::string> texts_;
  std::size_t count_ = 0;
};

void read_parts(const io::TensorSource& file, nn::Replica& replica, const StateKind& kind) {
  fill_zero(replica.states().*kind.in);
  for (const nn::FlatParameter& parameter : replica.flat().all()) {
    const nn::StatePart part = replica.part_of(parameter);
    const Tensor& elements = part.states.*kind.in;
    if (ops::is_given(elements)) file.read_part(name_of(kind, parameter), part.first, elements);
  }
}

}  // namespace

std::vector<io::NamedTensor> state_tensors(const nn::FlatParameters& flat,
                                           const nn::States& states) {
  std::vector<io::NamedTensor> tensors;
  for (const StateKind& kind : kinds_of(states)) {
    for (const nn::FlatParameter& parameter : flat.all()) {
      tensors.push_back({.name = name_of(kind, parameter),
                         .tensor = nn::FlatParameters::view(states.*kind.in, parameter)});
    }
  }
  return tensors;
}

std::vector<io::TensorPart> state_parts(const nn::Replica& replica) {
  std::vector<io::TensorPart> parts;
  for (const StateKind& kind : kinds_of(replica.states())) {
    for (const nn::FlatParameter& parameter : replica.flat().all()) {
      const nn::StatePart part = replica.part_of(parameter);
      const Tensor& elements = part.states.*kind.in;
      if (!ops::is_given(elements)) continue;
      parts.push_back({.name = name_of(kind, parameter),
                       .shape = parameter.shape,
                       .first = part.first,
                       .elements = elements});
    }
  }
  return parts;
}

std::vector<std::size_t> files_of_parts(const io::PartedSafetensors& files,
                                        const nn::Replica& replica) {
  std::vector<std::size_t> found;
  for (const io::TensorPart& part : state_parts(replica)) {
    const auto of_part = files.files_of(part.name, part.first, part.elements.elements());
    found.insert(found.end(), of_part.begin(), of_part.end());
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

void check_same_parameters(const io::TensorSource& file, const nn::FlatParameters& flat) {
  Differences differences;
  std::size_t common = 0;
  for (const nn::FlatParameter& parameter : flat.all()) {
    const auto* entry = file.find(parameter.name);
    if (entry == nullptr) {
      differences.add("it has no '{}' of {}", parameter.name, parameter.shape.text());
      continue;
    }
    ++common;
    if (entry->shape != parameter.shape) {
      differences.add("its '{}' is {}, the model's {}", parameter.name, entry->shape.text(),
                      parameter.shape.text());
    } else if (entry->dtype != DType::kF32) {
      differences.add("its '{}' is of type {} instead of F32", parameter.name, entry->type);
    }
  }
  std::size_t parameters = 0;
  const std::vector<std::string_view> names = file.names();
  for (const std::string_view name : names) parameters += is_parameter(name) ? 1 : 0;
  if (parameters > common) {
    for (const std::string_view name : names) {
      if (!is_parameter(name)) continue;
      bool known = false;
      for (const nn::FlatParameter& parameter : flat.all()) known |= parameter.name == name;
      if (!known) differences.add("the model has no '{}' of {}", name, file.at(name).shape.text());
    }
  }
  differences.fail_if_any();
}

void read_parameter_tensors(const io::TensorSource& file, const nn::FlatParameters& flat,
                            const Tensor& row) {
  check_same_parameters(file, flat);
  fill_zero(row);
  for (const nn::FlatParameter& parameter : flat.all()) {
    file.read(parameter.name, nn::FlatParameters::view(row, parameter));
  }
}

void read_parameter_tensors(const io::TensorSource& file, nn::Replica& replica) {
  check_same_parameters(file, replica.flat());
  read_parts(file, replica, kParameters);
}

void read_state_tensors(const io::TensorSource& file, nn::Replica& replica, bool fresh) {
  const nn::FlatParameters& flat = replica.flat();
  check_same_parameters(file, flat);
  if (flat.all().empty()) return;
  const auto stored = [&](const StateKind& kind) {
    return file.find(name_of(kind, flat.all().front())) != nullptr;
  };
  for (const StateKind& kind : kOfOptimizers) {
    if (fresh || stored(kind) == ops::is_given(replica.states().*kind.in)) continue;
    const std::string_view what = kind.prefix.substr(0, kind.prefix.size() - 1);
    fail(ErrorCode::kInvalidArgument,
         "the checkpoint was saved {} the optimizer's {}, and this run goes on {}; go on with the "
         "optimizer.* keys of its config.toml, or begin a new run with its parameters",
         stored(kind) ? "with" : "without", what, stored(kind) ? "without it" : "with it");
  }
  for (const StateKind& kind : kinds_of(replica.states())) {
    if (stored(kind)) {
      read_parts(file, replica, kind);
    } else {
      fill_zero(replica.states().*kind.in);
    }
  }
}

}  // namespace lockstep::train
