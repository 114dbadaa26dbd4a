// A model as it lies on the disk: of a run's folder (its newest whole checkpoint), of one
// checkpoint, or of a folder of Hugging Face transformers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/nn/model.h"
#include "lockstep/nn/parameters/weights.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

struct SavedModel {
  std::string origin;  // for people: "run/checkpoints/step-00001000"
  nn::Model model;
  std::int64_t positions = 0;                  // of the longest text that it was made for
  std::unique_ptr<data::Tokenizer> tokenizer;  // null: none lies there
  // Fills a flat buffer of f32 with its parameters.
  std::function<void(const nn::FlatParameters& flat, const Tensor& buffer)> read;
};

// Reads everything but the parameters. Throws Error(kInvalidArgument) for a path that is none of
// these, and Error(kProtocol) or Error(kUnsupported) for files that are damaged, or that lockstep
// has no model for.
SavedModel open_model(const std::filesystem::path& path, const Warn& warn);

// How its settings describe it, for the choice of a device. Throws as open_model() does.
ModelChoice choice_in(const std::filesystem::path& path);

// Its parameters in a compute type; in one of 16 bits rounded.
nn::Weights load_weights(const SavedModel& saved, DType dtype, Ops& ops);

}  // namespace lockstep::train
