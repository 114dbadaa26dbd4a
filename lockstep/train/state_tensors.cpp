#include "lockstep/train/state_tensors.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

// A row of nn::States with what stands before the names of its tensors.
struct OptimizerRow {
  std::string_view prefix;
  Tensor row;
};

std::vector<OptimizerRow> optimizer_rows(const nn::States& states) {
  return {
      {"moment/", states.moment}, {"variance/", states.variance}, {"velocity/", states.velocity}};
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

void read_row(const io::SafetensorsFile& file, const nn::FlatParameters& flat,
              std::string_view prefix, const Tensor& row) {
  fill_zero(row);
  for (const nn::FlatParameter& parameter : flat.all()) {
    file.read(fmt::format("{}{}", prefix, parameter.name),
              nn::FlatParameters::view(row, parameter));
  }
}

}  // namespace

std::vector<io::NamedTensor> state_tensors(const nn::FlatParameters& flat,
                                           const nn::States& states) {
  std::vector<io::NamedTensor> tensors;
  const auto add = [&](std::string_view prefix, const Tensor& row) {
    for (const nn::FlatParameter& parameter : flat.all()) {
      tensors.push_back({.name = fmt::format("{}{}", prefix, parameter.name),
                         .tensor = nn::FlatParameters::view(row, parameter)});
    }
  };
  add("", states.master);
  for (const OptimizerRow& one : optimizer_rows(states)) {
    if (ops::is_given(one.row)) add(one.prefix, one.row);
  }
  return tensors;
}

void check_same_parameters(const io::SafetensorsFile& file, const nn::FlatParameters& flat) {
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
  for (const auto& entry : file.entries()) parameters += is_parameter(entry.name) ? 1 : 0;
  if (parameters > common) {
    for (const auto& entry : file.entries()) {
      if (!is_parameter(entry.name)) continue;
      bool known = false;
      for (const nn::FlatParameter& parameter : flat.all()) known |= parameter.name == entry.name;
      if (!known) differences.add("the model has no '{}' of {}", entry.name, entry.shape.text());
    }
  }
  differences.fail_if_any();
}

void read_parameter_tensors(const io::SafetensorsFile& file, const nn::FlatParameters& flat,
                            const Tensor& row) {
  check_same_parameters(file, flat);
  read_row(file, flat, "", row);
}

void read_state_tensors(const io::SafetensorsFile& file, const nn::FlatParameters& flat,
                        const nn::States& states, bool fresh) {
  check_same_parameters(file, flat);
  if (flat.all().empty()) return;
  const std::string& first = flat.all().front().name;
  const auto stored = [&](const OptimizerRow& one) {
    return file.find(fmt::format("{}{}", one.prefix, first)) != nullptr;
  };
  for (const OptimizerRow& one : optimizer_rows(states)) {
    if (fresh || stored(one) == ops::is_given(one.row)) continue;
    const std::string_view what = one.prefix.substr(0, one.prefix.size() - 1);
    fail(ErrorCode::kInvalidArgument,
         "the checkpoint was saved {} the optimizer's {}, and this run goes on {}; go on with the "
         "optimizer.* keys of its config.toml, or begin a new run with its parameters",
         stored(one) ? "with" : "without", what, stored(one) ? "without it" : "with it");
  }
  read_row(file, flat, "", states.master);
  for (const OptimizerRow& one : optimizer_rows(states)) {
    if (!ops::is_given(one.row)) continue;
    if (stored(one)) {
      read_row(file, flat, one.prefix, one.row);
    } else {
      fill_zero(one.row);
    }
  }
}

}  // namespace lockstep::train
