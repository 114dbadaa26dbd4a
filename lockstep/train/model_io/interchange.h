// Models to and from folders of Hugging Face transformers.
//
//   config.json                 nn/hugging_face/config.h
//   model.safetensors           or several with an index (io/sharded_safetensors.h)
//   tokenizer.json              as it is; tokenizer_config.json beside it where we write
//   lockstep_tokenizer.json     a byte or character tokenizer as it is in lockstep
//   generation_config.json      written, not read
//
// A folder is written completely or not at all (io/staged_folder.h). An existing one is replaced
// only if it is empty or holds only files of the same command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/plan/model_shape.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/train/checkpoint/checkpoint.h"

namespace lockstep::train {

struct Interchanged {
  plan::ModelShape shape;
  std::uint64_t parameters = 0;
  bool tokenizer = false;
  std::vector<std::string> notices;  // for the user
};

// Makes the folder of a run with a checkpoint of step 0, which every command accepts. Throws
// Error(kInvalidArgument) or Error(kUnsupported) for a model that cannot be read, and says what to
// do about files of pickled tensors, which are not read.
Interchanged import_hugging_face(const std::filesystem::path& from,
                                 const std::filesystem::path& run);

struct ExportOptions {
  DType dtype = DType::kF32;  // f32, bf16 or f16
  std::size_t shard_bytes = 5'000'000'000;
};
// The parameters of a run's newest checkpoint that is whole, or of one checkpoint. Throws
// Error(kUnsupported) for a family that transformers does not have.
Interchanged export_hugging_face(const std::filesystem::path& run_or_checkpoint,
                                 const std::filesystem::path& to, const ExportOptions& options,
                                 const Warn& warn);

}  // namespace lockstep::train
