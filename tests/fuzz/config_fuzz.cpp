// Configurations of runs: TOML, JSON (what begins with a brace) and key=value, with the names that
// other trainers have. What is read must come back the same from what is printed.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/base/config/config.h"
#include "lockstep/base/error.h"
#include "lockstep/train/options/run_options.h"

namespace {

struct Settings {
  Settings() { lockstep::train::bind(config, options); }
  lockstep::train::RunOptions options;
  lockstep::Config config;
};

std::string without_origins(const std::string& resolved) {
  Settings settings;
  settings.config.read_toml(resolved, "resolved");
  return settings.config.resolved();
}

// What begins with a blank is an argument.
void read(Settings& settings, std::string_view text) {
  if (text.starts_with(' ')) return settings.config.set(text.substr(1));
  if (text.starts_with('{')) return settings.config.read_json(text, "fuzz");
  settings.config.read_toml(text, "fuzz");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Settings settings;
  try {
    read(settings, {reinterpret_cast<const char*>(data), size});
  } catch (const lockstep::Error&) {
    return 0;
  }
  // Twice, because the first one still says where in the input each value was.
  const std::string once = without_origins(settings.config.resolved());
  const std::string twice = without_origins(once);
  if (once != twice) std::abort();
  try {
    settings.options = lockstep::train::completed(settings.options);
    lockstep::train::with_steps(settings.options, 1000003);
  } catch (const lockstep::Error&) {
  }
  return 0;
}
