// Configurations of runs. What is read must come back the same from what is printed.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/base/config.h"
#include "lockstep/base/error.h"
#include "lockstep/data/options.h"
#include "lockstep/train/options.h"

namespace {

struct Settings {
  Settings() {
    lockstep::train::bind(config, train);
    lockstep::data::bind(config, data);
  }
  lockstep::train::TrainOptions train;
  lockstep::data::DataOptions data;
  lockstep::Config config;
};

std::string without_origins(const std::string& resolved) {
  Settings settings;
  settings.config.read_toml(resolved, "resolved");
  return settings.config.resolved();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Settings settings;
  try {
    settings.config.read_toml({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const lockstep::Error&) {
    return 0;
  }
  // Twice, as the first one still tells where in the input each value stood.
  const std::string once = without_origins(settings.config.resolved());
  const std::string twice = without_origins(once);
  if (once != twice) std::abort();
  return 0;
}
