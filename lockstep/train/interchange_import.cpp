#include <fmt/format.h>

#include <optional>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/io/hashed_file.h"
#include "lockstep/io/sharded_safetensors.h"
#include "lockstep/io/staged_folder.h"
#include "lockstep/nn/hugging_face.h"
#include "lockstep/nn/hugging_face_config.h"
#include "lockstep/train/interchange.h"
#include "lockstep/train/replaceable_folder.h"
#include "lockstep/train/run_folder.h"
#include "lockstep/train/run_options.h"
#include "lockstep/train/stored_model.h"
#include "lockstep/train/tokenizer_files.h"

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
    fail(ErrorCode::kInvalidArgument, "there is no folder {}", folder.string());
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
         "{} is no folder of Hugging Face transformers: it has no config.json", folder.string());
  }
}

int to_int(plan::Count count) {
  if (count > static_cast<plan::Count>(std::numeric_limits<int>::max())) {
    fail(ErrorCode::kInvalidArgument, "a size of {} is more than models of lockstep can have",
         count);
  }
  return static_cast<int>(count);
}

ModelChoice choice_of(const nn::HuggingFaceConfig& config) {
  const plan::ModelShape& shape = config.shape;
  ModelChoice choice;
  choice.family = model_family(shape.family);
  choice.layers = to_int(shape.layers);
  choice.hidden = to_int(shape.hidden);
  choice.heads = to_int(shape.heads);
  choice.kv_heads = to_int(shape.kv_heads);
  choice.feed_forward = to_int(shape.feed_forward);
  choice.vocabulary = to_int(shape.vocabulary);
  choice.positions = to_int(shape.positions);
  if (config.options.epsilon) choice.epsilon = as_written(*config.options.epsilon);
  choice.theta = as_written(config.options.theta);
  choice.dropout = config.options.dropout;
  if (shape.head == plan::Head::kOwn) choice.logits = LogitsChoice::kOwn;
  if (shape.head == plan::Head::kTied) choice.logits = LogitsChoice::kTied;
  return choice;
}

// Empty where there is none.
std::string read_tokenizer(const fs::path& folder, std::vector<std::string>& notices) {
  for (const char* name : {"lockstep_tokenizer.json", "tokenizer.json"}) {
    const fs::path file = folder / name;
    if (!is_there(file)) continue;
    std::string text = read_file(file);
    is_hugging_face_tokenizer(text, file.string());  // is JSON
    return text;
  }
  notices.push_back(fmt::format(
      "{} has no tokenizer.json, so the model comes without a tokenizer; Hugging Face's library "
      "writes one: AutoTokenizer.from_pretrained(...).save_pretrained(...)",
      folder.string()));
  return "";
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
  const nn::FlatParameters flat = flat_of(model_of(options.train));
  nn::check_is_model(tensors, theirs.shape.family, flat);
  const std::string tokenizer = read_tokenizer(from, result.notices);

  const Buffer memory(flat.elements() * size_of(DType::kF32));
  nn::States states;
  states.master = memory.tensor(DType::kF32, {static_cast<std::int64_t>(flat.elements())});
  nn::read_hugging_face(tensors, theirs.shape.family, flat, states.master);

  io::remove_stale(fs::absolute(run).lexically_normal().parent_path());
  std::optional<RunFolder> held;  // nobody trains in what is replaced
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
