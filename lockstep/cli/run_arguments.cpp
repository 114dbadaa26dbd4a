#include "lockstep/cli/run_arguments.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::cli {
namespace {

// One kind of data replaces another: what the arguments name, what a file named.
void forget_replaced_data(data::DataOptions& data, std::span<const std::string> settings) {
  const auto named = [&](std::string_view key) {
    return std::any_of(settings.begin(), settings.end(), [&](const std::string& setting) {
      return trim(std::string_view(setting).substr(0, setting.find('='))) == key;
    });
  };
  if (!named("data.text") && !named("data.tokens") && !named("data.pairs") && !named("data.table"))
    return;
  for (std::string* path : {&data.text, &data.tokens, &data.pairs, &data.table}) path->clear();
}

}  // namespace

void read_run_arguments(Config& config, train::RunOptions& options,
                        const std::vector<std::string>& arguments) {
  std::size_t first_setting = 0;
  if (!arguments.empty() && arguments.front().find('=') == std::string::npos) {
    const std::filesystem::path path = arguments.front();
    if (std::filesystem::is_directory(path)) {
      const auto file = train::RunFolder::config_of(path);
      if (!std::filesystem::exists(file)) {
        fail(ErrorCode::kInvalidArgument,
             "{} is no folder of a run: it has no config.toml; give a configuration file instead",
             path.string());
      }
      config.read_file(file.string());
      options.dir = path.string();
    } else {
      config.read_file(path.string());
    }
    first_setting = 1;
  }
  const auto settings = std::span(arguments).subspan(first_setting);
  forget_replaced_data(options.data, settings);
  for (const std::string& setting : settings) config.set(setting);
}

}  // namespace lockstep::cli
