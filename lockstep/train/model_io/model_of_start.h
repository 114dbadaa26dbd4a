// The model and the tokenizer that a run starts with: of the newest checkpoint in its folder, else
// of run.init_from.
#pragma once

#include <filesystem>
#include <memory>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/train/options/run_options.h"

namespace lockstep::train {

// Whether a folder is one of Hugging Face transformers.
bool is_foreign(const std::filesystem::path& folder);

// The model of a run: the one that the settings describe; else that of the run's own checkpoint, or
// of run.init_from. Throws Error(kInvalidArgument) for a model that cannot be, before any data is
// looked at.
ModelChoice model_of_start(const RunOptions& options);

// The tokenizer that the parameters were learned with; nullptr where none is known. Throws Error
// where it cannot be read and the data needs it.
std::shared_ptr<const data::Tokenizer> tokenizer_of_start(const RunOptions& options);

// Throws Error(kInvalidArgument) if the run was started with another tokenizer than its data has
// now.
void check_same_tokenizer(const RunOptions& options, const data::Tokenizer& of_model,
                          const data::Tokenizer& of_data);
// A warning if the parameters have another tokenizer; empty: none.
std::string other_tokenizer(const RunOptions& options, const data::Tokenizer& of_model,
                            const data::Tokenizer& of_data);

}  // namespace lockstep::train
