#include "lockstep/train/model_io/model_of_start.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/dataset/tokenizer_files.h"
#include "lockstep/train/model_io/stored_model.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kForeignModel = "config.json";  // of Hugging Face transformers

ModelChoice model_in(const fs::path& folder) {
  if (is_foreign(folder)) {
    const fs::path file = folder / kForeignModel;
    return choice_of(nn::parse_hugging_face_config(read_file(file), file.string()));
  }
  const std::string toml = stored_text(folder, kConfigFile);
  if (toml.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "run.init_from = {} is neither a run with a whole checkpoint, nor a checkpoint, nor a "
         "folder of Hugging Face transformers",
         folder.string());
  }
  const TrainOptions stored =
      stored_options({.folder = folder, .state = {}, .config = toml, .tokenizer = {}});
  ModelChoice model = stored.model;
  // Left open there it was as long as that run's sequences.
  if (model.name.empty() && model.positions == 0) model.positions = stored.batch.sequence;
  return model;
}

// The tokenizer and how errors call it; both empty where there is none.
std::pair<std::string, std::string> tokenizer_text(const RunOptions& options) {
  if (const std::string own = stored_text(options.dir, kTokenizerFile); !own.empty()) {
    return {own, options.dir + "/checkpoints/.../tokenizer.json"};
  }
  if (options.init_from.empty()) return {};
  if (!is_foreign(options.init_from))
    return {stored_text(options.init_from, kTokenizerFile), options.init_from};
  const fs::path file = tokenizer_file_in(options.init_from);
  if (file.empty()) return {};
  return {read_file(file), file.string()};
}

std::string described(const data::Tokenizer& tokenizer) {
  return fmt::format("{} of {} ids", tokenizer.kind(), tokenizer.vocabulary());
}

}  // namespace

bool is_foreign(const fs::path& folder) {
  std::error_code none;
  return fs::exists(folder / kForeignModel, none);
}

ModelChoice model_of_start(const RunOptions& options) {
  TrainOptions train = options.train;
  ModelChoice& model = train.model;
  if (!describes_model(model) && !options.init_from.empty()) {
    const bool begun = !stored_text(options.dir, kConfigFile).empty();
    model = model_in(begun ? options.dir : options.init_from);
  }
  if (has_shape(train)) shape_of(train);  // throws for what cannot be
  return model;
}

std::shared_ptr<const data::Tokenizer> tokenizer_of_start(const RunOptions& options) {
  const auto [text, source] = tokenizer_text(options);
  if (text.empty()) return nullptr;
  const data::DataOptions& data = options.data;
  const bool needed = data.tokenizer.empty() && !(data.text.empty() && data.pairs.empty());
  try {
    return data::parse_tokenizer(text, source);
  } catch (const Error&) {
    if (needed) throw;
    return nullptr;
  }
}

void check_same_tokenizer(const RunOptions& options, const data::Tokenizer& of_model,
                          const data::Tokenizer& of_data) {
  if (of_model.json() == of_data.json()) return;
  fail(ErrorCode::kInvalidArgument,
       "the run in run.dir = {} was started with another tokenizer ({}) than its data has now "
       "({}), so the same ids would mean different tokens. Leave data.tokenizer out to use the "
       "run's own, or choose another run.dir, with run.init_from = {} to start from its parameters",
       options.dir, described(of_model), described(of_data), options.dir);
}

std::string other_tokenizer(const RunOptions& options, const data::Tokenizer& of_model,
                            const data::Tokenizer& of_data) {
  if (of_model.json() == of_data.json()) return "";
  return fmt::format(
      "the parameters of run.init_from = {} were trained with another tokenizer ({}) than the data "
      "has ({}), so the same ids mean different tokens. Leave data.tokenizer out to use the "
      "model's own",
      options.init_from, described(of_model), described(of_data));
}

}  // namespace lockstep::train
