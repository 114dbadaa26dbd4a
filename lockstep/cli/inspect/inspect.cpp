// lockstep inspect: what a file or folder is, and whether it is whole.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/inspect/checkpoint.h"
#include "lockstep/cli/inspect/tokens.h"
#include "lockstep/data/token_file/formats.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/observe/report/run_picture.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInspectFooter =
    R"(Reads every byte of a run or a checkpoint and compares it with the saved hashes. Damaged files are
listed, and the exit code is 1.

Examples:
  lockstep inspect runs/first
  lockstep inspect runs/first/checkpoints/step-00001000 --config
  lockstep inspect runs/first --checkpoint best
  lockstep inspect runs/first --svg run.svg
  lockstep inspect gpt2/model.safetensors
  lockstep inspect data/train.tokens)";

// False where something is damaged.
bool inspect_folder(const fs::path& path, const InspectOptions& options) {
  const auto has = [&](const char* name) {
    std::error_code none;
    return fs::exists(path / name, none);
  };
  const bool is_run = has("checkpoints") || train::RunFolder::is_run(path);
  if (is_run || has("manifest.json") || has("states.safetensors")) {
    return inspect_checkpoint(path, options);
  }
  if (has("config.json") || has("model.safetensors") || has("model.safetensors.index.json")) {
    inspect_hugging_face(path);
    return true;
  }
  fail(ErrorCode::kInvalidArgument,
       "{} is not the folder of a run, a checkpoint or a model: a run has config.toml and "
       "checkpoints/ in it, a "
       "checkpoint manifest.json, a model of Hugging Face transformers config.json",
       path.string());
}

bool inspect(const fs::path& path, const InspectOptions& options) {
  std::error_code none;
  if (fs::is_directory(path, none)) return inspect_folder(path, options);
  // The two files of a Megatron dataset go by what their names have in common.
  if (!fs::exists(path, none) && !fs::exists(data::megatron_paths(path).idx, none)) {
    fail(ErrorCode::kInvalidArgument, "{} does not exist", path.string());
  }
  if (path.extension() == ".safetensors") {
    inspect_safetensors(path);
  } else {
    inspect_token_file(path);
  }
  return true;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "inspect", "Show what a checkpoint, a model or a token file holds, and whether it is whole");
  auto path = std::make_shared<std::string>();
  auto options = std::make_shared<InspectOptions>();
  command
      ->add_option("path", *path,
                   "A run, a checkpoint, a Hugging Face model, a .safetensors or a token file")
      ->type_name("PATH")
      ->required();
  auto which = std::make_shared<std::string>();
  command
      ->add_option("--checkpoint", *which,
                   "Of a run: newest, best (the lowest validation loss) or a step, alone")
      ->type_name("WHICH");
  auto svg = std::make_shared<std::string>();
  command->add_flag("--config", options->config, "Print the configuration, too");
  command
      ->add_option("--svg", *svg,
                   "Only draw a run into this file: its loss, and one step if it was traced")
      ->type_name("FILE");
  command->footer(kInspectFooter);
  command->callback([path, options, which, svg, &exit_code] {
    if (svg->empty()) {
      exit_code = inspect(train::choose_checkpoint(*path, *which), *options) ? 0 : 1;
      return;
    }
    write_file(*svg, train::draw_run(*path));
    fmt::print("drawn in {}\n", *svg);
    exit_code = 0;
  });
}

}  // namespace lockstep::cli
