#include "lockstep/cli/inspect/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/plan/question.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/model_io/stored_model.h"
#include "lockstep/train/observe/metrics_file.h"
#include "lockstep/train/run/run_summary.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

std::uintmax_t folder_bytes(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    std::error_code none;
    const std::uintmax_t one = fs::file_size(at->path(), none);
    if (!none) bytes += one;
  }
  return bytes;
}

std::string files_text(const train::Checkpoint& checkpoint) {
  TextTable table("lr");
  std::vector<std::string> names;
  for (const auto& [name, hash] : checkpoint.states) names.push_back(name);
  names.insert(names.end(),
               {"residuals.safetensors", "config.toml", "tokenizer.json", "manifest.json"});
  for (const std::string& name : names) {
    std::error_code none;
    const std::uintmax_t bytes = fs::file_size(checkpoint.folder / name, none);
    if (!none) table.row({name, format_count(bytes)});
  }
  return "\nfiles, each with the hash of what was saved; bytes\n" + table.text();
}

std::string state_text(const train::Checkpoint& checkpoint) {
  const train::TrainState& state = checkpoint.state;
  std::string text = fmt::format("step {}, {} updates of the parameters",
                                 format_count(static_cast<std::uint64_t>(state.steps)),
                                 format_count(static_cast<std::uint64_t>(state.updates)));
  if (state.loss_scale) {
    text += fmt::format(", loss scale {} for {} good steps", state.loss_scale->scale,
                        state.loss_scale->good_steps);
  }
  if (checkpoint.validation_loss) {
    text += fmt::format(", validation loss {:.6f}", *checkpoint.validation_loss);
  }
  return text + "\n";
}

std::string model_text(const train::Checkpoint& checkpoint) {
  try {
    const train::TrainOptions options = train::stored_options(checkpoint);
    if (train::has_shape(options)) return describe(train::shape_of(options));
    return fmt::format("a model of family {}\n", name(train::family_of(options)));
  } catch (const Error& error) {
    return fmt::format("its config.toml cannot be used: {}\n", error.what());
  }
}

// Of one tensor; the norm is the root of the sum of squares.
struct Numbers {
  double norm = 0;
  double largest = 0;
};

Numbers numbers_of(const io::TensorSource& file, const std::string& name) {
  const auto loaded = file.load(name);
  Numbers numbers;
  for (const float value : loaded.tensor.as<const float>()) {
    const double magnitude = std::abs(static_cast<double>(value));
    numbers.norm += magnitude * magnitude;
    if (!(magnitude <= numbers.largest)) numbers.largest = magnitude;  // keeps NaN
  }
  numbers.norm = std::sqrt(numbers.norm);
  return numbers;
}

std::string tensors_text(const io::TensorSource& file) {
  TextTable table("llrrr");
  table.row({"tensor", "shape", "elements", "norm", "largest"});
  std::uint64_t parameters = 0;
  bool kept = false;
  for (const std::string_view name : file.names()) {
    const io::TensorEntry& entry = file.at(name);
    const std::uint64_t elements = entry.shape.elements();
    const bool parameter = entry.name.find('/') == std::string::npos;
    if (parameter) parameters += elements;
    kept |= !parameter;
    if (entry.dtype != DType::kF32) continue;
    const Numbers numbers = numbers_of(file, entry.name);
    table.row({printable(entry.name), entry.shape.text(), format_count(elements),
               fmt::format("{:.5g}", numbers.norm), fmt::format("{:.5g}", numbers.largest)});
  }
  return fmt::format("\n{} parameters{}\n{}", format_count(parameters),
                     kept ? ", and the optimizer's states" : "", table.text());
}

void print_checkpoint(const train::Checkpoint& checkpoint, const InspectOptions& options) {
  fmt::print("{}\n{}{}{}{}", checkpoint.folder.string(), state_text(checkpoint),
             model_text(checkpoint), files_text(checkpoint),
             tensors_text(*train::open_states(checkpoint)));
  if (options.config) fmt::print("\nconfig.toml\n{}", checkpoint.config);
}

// "'wide' in runs/a "
std::string run_text(const fs::path& run) {
  const std::string name = train::summarise_run(run).name;
  return fmt::format("{}in {} ", name.empty() ? "" : fmt::format("'{}' ", printable(name)),
                     run.string());
}

// One that has saved nothing so far.
void print_begun_run(const fs::path& run, const InspectOptions& options) {
  fmt::print("the run {}has saved no checkpoint yet\n", run_text(run));
  std::int64_t steps = 0;
  train::read_metrics(run, [&](const train::StepRecord& one) { steps = one.metrics.step; });
  fmt::print("{} done\n", counted(static_cast<std::uint64_t>(steps), "step"));
  std::error_code none;
  const fs::path config = train::RunFolder::config_of(run);
  if (!fs::exists(config, none)) return;
  const std::string text = read_file(config);
  fmt::print("{}", model_text({.folder = run, .state = {}, .config = text, .tokenizer = {}}));
  if (options.config) fmt::print("\nconfig.toml\n{}", text);
}

}  // namespace

bool inspect_checkpoint(const fs::path& path, const InspectOptions& options) {
  std::error_code none;
  if (!fs::is_directory(path / "checkpoints", none) && !train::RunFolder::is_run(path)) {
    print_checkpoint(train::open_checkpoint(path, {}), options);
    return true;
  }
  const train::CheckpointFolder folder(path);
  if (folder.steps().empty()) {
    print_begun_run(path, options);
    return true;
  }
  const auto validated = folder.by_validation();
  TextTable table(validated.empty() ? "rrl" : "rrrl");
  std::vector<std::string> head = {"step", "bytes", ""};
  if (!validated.empty()) head.insert(head.end() - 1, "val loss");
  table.row(head);
  std::optional<train::Checkpoint> newest;
  bool whole = true;
  for (const std::int64_t step : folder.steps()) {
    std::string state = "whole";
    std::string loss = "-";
    for (const auto& one : validated) {
      if (one.step == step) loss = fmt::format("{:.6f}", one.loss);
    }
    if (!validated.empty() && validated.front().step == step) state += ", best";
    try {
      train::Checkpoint one = train::open_checkpoint(folder.path(step), {});
      if (!newest) newest = std::move(one);
    } catch (const Error& error) {
      state = error.what();
      whole = false;
    }
    std::vector<std::string> row = {format_count(static_cast<std::uint64_t>(step)),
                                    format_count(folder_bytes(folder.path(step))), state};
    if (!validated.empty()) row.insert(row.end() - 1, loss);
    table.row(std::move(row));
  }
  fmt::print("the run {}has these checkpoints\n{}\n", run_text(path), table.text());
  if (newest) print_checkpoint(*newest, options);
  return whole;
}

}  // namespace lockstep::cli
