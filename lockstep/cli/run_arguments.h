// A run on the command line: a configuration file or a run's folder, and key=value settings on top.
#pragma once

#include <string>
#include <vector>

#include "lockstep/train/options/run_options.h"

namespace lockstep::cli {

// Reads into `settings`. A run's folder is one with a config.toml of ours; run.dir then is that
// folder. Paths of data are made absolute (train/options/data_paths.h).
void read_run_arguments(train::RunSettings& settings, const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
