// What a run begins with besides its settings: the newest checkpoint of its folder, else
// run.init_from.
#pragma once

#include <filesystem>
#include <memory>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/train/options/run_options.h"

namespace lockstep::train {

// Whether a folder is one of Hugging Face transformers.
bool is_foreign(const std::filesystem::path& folder);

// Where no model is described but run.init_from is given, its model is taken, or that of the run's
// own checkpoint where there is one. Throws Error(kInvalidArgument) for a model that cannot be,
// before any data is looked at.
void settle_model(RunOptions& options);

// The tokenizer that the parameters were learned with; nullptr where none is known. Throws Error
// where it cannot be read and the data needs it.
std::shared_ptr<const data::Tokenizer> tokenizer_of_start(const RunOptions& options);

// Ids of another tokenizer mean other things. Throws Error(kInvalidArgument) where the run was
// begun with another one than its data has now.
void check_same_tokenizer(const RunOptions& options, const data::Tokenizer& of_model,
                          const data::Tokenizer& of_data);
// What a person should know of parameters from elsewhere; empty: nothing.
std::string other_tokenizer(const RunOptions& options, const data::Tokenizer& of_model,
                            const data::Tokenizer& of_data);

}  // namespace lockstep::train
