#include "lockstep/cli/run_arguments.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::cli {

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
  for (std::size_t i = first_setting; i < arguments.size(); ++i) config.set(arguments[i]);
}

}  // namespace lockstep::cli
