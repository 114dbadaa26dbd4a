// Where the files are that a run reads: data.* and run.init_from.
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/train/options/run_options.h"

namespace lockstep::train {

// Whether there is something of that name: a file, a folder, the two files of a Megatron dataset
// (which go by what their names have in common), or standard input ("-").
bool is_data_there(const std::string& path);

// Makes relative paths absolute, so that the run can be resumed from any folder. One that a
// configuration file names is looked for `beside` that file first, then in the current folder;
// empty: only there. A path that is in neither stays as it is, and opening it reports the error.
// run.dir is not looked for: it is always relative to the current folder.
void find_data(RunOptions& options, const std::filesystem::path& beside = {});

}  // namespace lockstep::train
