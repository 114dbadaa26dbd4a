#include <fmt/format.h>

#include <optional>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/text/text.h"
#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/io/hashed_file.h"
#include "lockstep/io/sharded_safetensors.h"
#include "lockstep/io/staged_folder.h"
#include "lockstep/nn/hugging_face/config.h"
#include "lockstep/nn/hugging_face/hugging_face.h"
#include "lockstep/train/checkpoint/replaceable_folder.h"
#include "lockstep/train/dataset/tokenizer_files.h"
#include "lockstep/train/model_io/interchange.h"
#include "lockstep/train/model_io/stored_model.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

void check_is_hugging_face(const fs::path& folder) {
  std::error_code none;
  if (!fs::is_directory(folder, none)) {
    fail(ErrorCode::kInvalidArgument, "the folder {} does not exist", folder.string());
  }
  const bool tensors =
      is_there(folder / "model.safetensors") || is_there(folder / "model.safetensors.index.json");
  if (!tensors && (is_there(folder / "pytorch_model.bin") ||
                   is_there(folder / "pytorch_model.bin.index.json"))) {
    fail(ErrorCode::kUnsupported,
         "{} has its tensors in pytorch_model.bin, a format that can run any program when it is "
         "read. Convert it where you trust it, in Python: "
         "AutoModelForCausalLM.from_pretrained('{}').save_pretrained('converted'), and import that "
         "(AutoModelForMaskedLM for BERT)",
         folder.string(), folder.string());
  }
  if (!is_there(folder / "config.json")) {
    fail(ErrorCode::kInvalidArgument,
         "{} is not a Hugging Face model folder: it has no config.json", folder.string());
  }
}

// Empty where there is none.
std::string read_tokenizer(const fs::path& folder, std::vector<std::string>& notices) {
  if (const fs::path file = tokenizer_file_in(folder); !file.empty()) {
    std::string text = read_file(file);
    is_hugging_face_tokenizer(text, file.string());  // is JSON
    return text;
  }
  notices.push_back(fmt::format(
      "{} has no tokenizer.json, so the model is imported without a tokenizer; Hugging Face's "
      "library writes one: AutoTokenizer.from_pretrained(...).save_pretrained(...)",
      folder.string()));
  return "";
}

// A model without a fitting tokenizer is still useful; a note says that it has none.
void note_tokenizer(const std::string& text, const fs::path& from, const plan::ModelShape& shape,
                    std::vector<std::string>& notices) {
  std::unique_ptr<data::Tokenizer> tokenizer;
  try {
    tokenizer = data::parse_tokenizer(text, tokenizer_file_in(from).string());
  } catch (const Error& error) {
    notices.push_back(
        fmt::format("the tokenizer is kept, but lockstep does not support it; generate and "
                    "data.text need another: {}",
                    error.what()));
    return;
  }
  if (static_cast<plan::Count>(tokenizer->vocabulary()) <= shape.vocabulary) return;
  notices.push_back(
      fmt::format("the tokenizer has {} ids and the model only {}: generate, and train on text, "
                  "will refuse it; is it this model's?",
                  tokenizer->vocabulary(), shape.vocabulary));
}

// Only what an import makes, and nothing that was trained since.
void check_run_replaceable(const fs::path& run) {
  check_replaceable(run, [](std::string_view name) {
    return name == "lock" || name == "config.toml" || name == "checkpoints";
  });
  if (!is_there(run)) return;
  for (const std::int64_t step : CheckpointFolder(run).steps()) {
    if (step == 0) continue;
    fail(ErrorCode::kInvalidArgument,
         "{} holds a run that has been trained up to step {}; name another folder", run.string(),
         step);
  }
}

// A configuration can ask for more than any machine has; the file has to be as large.
void check_possible(const nn::HuggingFaceConfig& config, const io::TensorSource& tensors) {
  if (config.shape.layers <= tensors.names().size()) return;
  fail(ErrorCode::kInvalidArgument, "config.json says {} layers, but {} has only {}",
       config.shape.layers, tensors.text(), counted(tensors.names().size(), "tensor"));
}

}  // namespace

Interchanged import_hugging_face(const fs::path& from, const fs::path& run) {
  check_is_hugging_face(from);
  check_run_replaceable(run);
  const fs::path config_file = from / "config.json";
  nn::HuggingFaceConfig theirs =
      nn::parse_hugging_face_config(read_file(config_file), config_file.string());
  Interchanged result{.shape = theirs.shape, .notices = std::move(theirs.notices)};

  RunOptions options;
  Config config;
  bind(config, options);
  options.train.model = choice_of(theirs);
  options.dir = run.string();
  const std::string toml = config.resolved();

  const io::ShardedSafetensors tensors(from);
  check_possible(theirs, tensors);
  const nn::FlatParameters flat = flat_of(whole_model_of(options.train));
  nn::check_is_model(tensors, theirs.shape, flat);
  const std::string tokenizer = read_tokenizer(from, result.notices);
  if (!tokenizer.empty()) note_tokenizer(tokenizer, from, theirs.shape, result.notices);

  const Buffer memory(flat.elements() * size_of(DType::kF32));
  nn::States states;
  states.master = memory.tensor(DType::kF32, {static_cast<std::int64_t>(flat.elements())});
  nn::read_hugging_face(tensors, theirs.shape, flat, states.master);

  io::remove_stale(fs::absolute(run).lexically_normal().parent_path());
  std::optional<RunFolder> held;  // locks the folder against training
  if (is_there(run / "lock")) held.emplace(run);
  io::StagedFolder staged(run);
  const RunFolder folder(staged.path());
  io::write_synced(RunFolder::config_of(staged.path()), toml);
  CheckpointFolder(staged.path())
      .save(flat, states, {.state = {}, .config = toml, .tokenizer = tokenizer}, {});
  staged.commit();
  result.parameters = flat.count();
  result.tokenizer = !tokenizer.empty();
  return result;
}

}  // namespace lockstep::train
