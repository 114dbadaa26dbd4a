#include "lockstep/cli/run_arguments.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/train/options/data_paths.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::cli {
namespace {

// One kind of data with what is held back of it.
struct DataKind {
  std::string data::DataOptions::*data;
  std::string data::DataOptions::*validation = nullptr;
};
constexpr DataKind kDataKinds[] = {
    {&data::DataOptions::text, &data::DataOptions::validation_text},
    {&data::DataOptions::tokens, &data::DataOptions::validation_tokens},
    {&data::DataOptions::pairs},
    {&data::DataOptions::table}};

// The kind that the arguments name replaces another that a file named.
void forget_replaced_data(const data::DataOptions& of_file, data::DataOptions& data) {
  const auto is_named = [&](std::string data::DataOptions::*field) {
    return data.*field != of_file.*field;
  };
  const bool mixes = data.mixture != of_file.mixture;
  const bool replaces = mixes || std::ranges::any_of(kDataKinds, [&](const DataKind& kind) {
                          return is_named(kind.data);
                        });
  if (replaces && !mixes) data.mixture.clear();
  for (const DataKind& kind : kDataKinds) {
    if (!replaces || is_named(kind.data)) continue;
    (data.*kind.data).clear();
    if (kind.validation != nullptr && !is_named(kind.validation)) (data.*kind.validation).clear();
  }
}

// A damaged config.toml of a run has copies in its checkpoints.
void read_config_of_run(Config& config, const std::filesystem::path& run,
                        const std::filesystem::path& file) {
  try {
    config.read_file(file.string());
  } catch (const Error& error) {
    fail(error.code(),
         "{}\nCorrect the file, or replace it by the config.toml of the newest checkpoint in {}: "
         "every checkpoint keeps the configuration that it was saved with",
         error.what(), (run / "checkpoints").string());
  }
}

}  // namespace

void read_run_arguments(train::RunSettings& settings, const std::vector<std::string>& arguments) {
  auto& [options, config] = settings;
  train::find_data(options);
  std::size_t first_setting = 0;
  if (!arguments.empty() && arguments.front().find('=') == std::string::npos) {
    const std::filesystem::path path = arguments.front();
    if (std::filesystem::is_directory(path)) {
      const auto file = train::RunFolder::config_of(path);
      if (!std::filesystem::exists(file)) {
        fail(ErrorCode::kInvalidArgument,
             "{} is a folder without config.toml, so it is not the folder of a run. Give a run's "
             "folder, or a configuration file",
             path.string());
      }
      read_config_of_run(config, path, file);
      options = train::with_open_schedule(options);
      options.dir = path.string();
      train::find_data(options);  // an older run's may be relative
    } else {
      config.read_file(path.string());
      train::find_data(options, std::filesystem::absolute(path).parent_path());
    }
    first_setting = 1;
  }
  const data::DataOptions of_file = options.data;
  for (const std::string& setting : std::span(arguments).subspan(first_setting)) {
    config.set(setting);
    // As many steps, instead of as many epochs as a file may have asked for.
    if (setting.starts_with("train.steps=")) options.epochs = 0;
  }
  forget_replaced_data(of_file, options.data);
  train::find_data(options);
}

}  // namespace lockstep::cli
