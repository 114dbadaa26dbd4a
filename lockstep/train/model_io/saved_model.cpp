#include "lockstep/train/model_io/saved_model.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/io/sharded_safetensors.h"
#include "lockstep/nn/hugging_face/config.h"
#include "lockstep/nn/hugging_face/hugging_face.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/dataset/tokenizer_files.h"
#include "lockstep/train/model_io/model_of_start.h"
#include "lockstep/train/model_io/stored_model.h"
#include "lockstep/train/options/run_options.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kForeignConfig = "config.json";

SavedModel open_foreign(const fs::path& folder) {
  const fs::path file = folder / kForeignConfig;
  const nn::HuggingFaceConfig config =
      nn::parse_hugging_face_config(read_file(file), file.string());
  const auto tensors = std::make_shared<io::ShardedSafetensors>(folder);
  SavedModel saved{.origin = folder.string(),
                   .model = nn::make_model(config.shape, config.options),
                   .positions = static_cast<std::int64_t>(config.shape.positions),
                   .tokenizer = {},
                   .read = {}};
  if (const fs::path tokenizer = tokenizer_file_in(folder); !tokenizer.empty()) {
    saved.tokenizer = data::load_tokenizer(tokenizer);
  }
  saved.read = [tensors, shape = config.shape](const nn::FlatParameters& flat,
                                               const Tensor& buffer) {
    nn::check_is_model(*tensors, shape, flat);
    nn::read_hugging_face(*tensors, shape, flat, buffer);
  };
  return saved;
}

SavedModel open_own(const fs::path& path, const Warn& warn) {
  Checkpoint checkpoint = open_checkpoint(path, warn);
  const std::string source = (checkpoint.folder / "config.toml").string();
  RunOptions options;
  Config config;
  bind(config, options);
  config.read_toml(checkpoint.config, source);
  if (!has_shape(options.train)) {
    fail(ErrorCode::kUnsupported, "{} is a model of family {}, which cannot generate text",
         path.string(), name(family_of(options.train)));
  }
  SavedModel saved{.origin = checkpoint.folder.string(),
                   .model = whole_model_of(options.train),
                   .positions = static_cast<std::int64_t>(shape_of(options.train).positions),
                   .tokenizer = {},
                   .read = {}};
  if (!checkpoint.tokenizer.empty()) {
    saved.tokenizer =
        data::parse_tokenizer(checkpoint.tokenizer, (checkpoint.folder / kTokenizerFile).string());
  }
  saved.read = [checkpoint = std::move(checkpoint)](const nn::FlatParameters& flat,
                                                    const Tensor& buffer) {
    read_parameters(checkpoint, flat, buffer);
  };
  return saved;
}

void check_is_folder(const fs::path& path) {
  if (fs::is_directory(path)) return;
  fail(ErrorCode::kInvalidArgument,
       "{} is not a folder; give the folder of a run, of a checkpoint, or of a Hugging Face model",
       path.string());
}

}  // namespace

ModelChoice choice_in(const fs::path& path) {
  check_is_folder(path);
  if (!is_foreign(path)) return stored_options(open_checkpoint(path, {})).model;
  const fs::path file = path / kForeignConfig;
  return choice_of(nn::parse_hugging_face_config(read_file(file), file.string()));
}

SavedModel open_model(const fs::path& path, const Warn& warn) {
  check_is_folder(path);
  return is_foreign(path) ? open_foreign(path) : open_own(path, warn);
}

nn::Weights load_weights(const SavedModel& saved, DType dtype, Ops& ops) {
  nn::Weights weights(saved.model, dtype, ops);
  if (dtype == DType::kF32) {
    fill_zero(weights.buffer());
    saved.read(weights.flat(), weights.buffer());
    return weights;
  }
  const nn::Weights wide(saved.model, DType::kF32, ops);
  fill_zero(wide.buffer());
  saved.read(wide.flat(), wide.buffer());
  ops.run(ops::Cast{.from = wide.buffer(), .to = weights.buffer()});
  ops.synchronize();
  return weights;
}

}  // namespace lockstep::train
