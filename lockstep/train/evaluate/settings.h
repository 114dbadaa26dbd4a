// The settings of an evaluation: those that the model was saved with, and key=value on top.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/options/run_options.h"

namespace lockstep::train {

// The part of the data that is evaluated.
enum class EvaluatedPart : std::uint8_t {
  kValidation,  // what the settings hold back, as a validation of the run takes it
  kAll,         // all of it
};

struct EvaluationRequest {
  std::filesystem::path model;  // a run, a checkpoint, or a folder of Hugging Face transformers
  std::string checkpoint;       // of a run: as choose_checkpoint() reads it
  std::vector<std::string> settings;  // key=value
  std::optional<EvaluatedPart> part;  // else all of data that the settings name, and of the model's
                                      // own data what is held back
  std::optional<std::uint64_t> batches;  // micro-batches; 0: all
};

struct EvaluationSettings {
  RunOptions options;                    // options.init_from is the folder with the parameters
  std::optional<Checkpoint> checkpoint;  // absent: the folder is one of transformers
  std::filesystem::path run;             // of that checkpoint; empty: not known
  EvaluatedPart part = EvaluatedPart::kAll;
  std::uint64_t sequences = 0;  // at most
};

// `folder` is a checkpoint, or a folder of transformers.
//
// Of the stored settings these count: model.*, data.*, train.seq_len, micro_batch_size, precision
// and seed. How the run was spread over ranks, its device and its offloading do not: every rank has
// the whole model. The environment and request.settings come on top. Throws Error(kInvalidArgument)
// for a setting that has no effect on an evaluation, for one without data, and for a part that its
// data does not have; and Error(kUnsupported) for a precision that needs what a checkpoint's states
// have besides parameters.
EvaluationSettings evaluation_settings(const EvaluationRequest& request,
                                       const std::filesystem::path& folder, const Warn& warn);

}  // namespace lockstep::train
