#include "lockstep/train/evaluate/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/model_io/model_of_start.h"
#include "lockstep/train/options/data_paths.h"
#include "lockstep/train/run/validation.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kAllSequences = std::numeric_limits<std::uint64_t>::max();
constexpr int kUsualEvaluatedBatch = 4;  // sequences, where no run says

// Keys that an evaluation reads; a name that ends in a point stands for all that begin so.
constexpr std::string_view kEvaluationKeys[] = {
    "data.",           "train.seq_len", "train.micro_batch_size",
    "train.precision", "train.threads", "train.seed",
    "run.device",      "device.",       "comm."};

bool is_evaluation_key(std::string_view key) {
  return std::ranges::any_of(kEvaluationKeys, [&](std::string_view one) {
    return one.ends_with('.') ? key.starts_with(one) : key == one;
  });
}

// The options of an evaluation, of those of a run.
RunOptions for_evaluation(const RunOptions& stored) {
  RunOptions options;
  TrainOptions& train = options.train;
  train.model = stored.train.model;
  // Left open it was as long as the run's sequences, which a setting may change.
  if (train.model.name.empty() && train.model.positions == 0) {
    train.model.positions = stored.train.batch.sequence;
  }
  train.batch.sequence = stored.train.batch.sequence;
  train.batch.micro = solved(stored.train.batch).micro;
  train.precision = stored.train.precision;
  train.seed = stored.train.seed;
  options.data = stored.data;
  return options;
}

// What says where data is, and how that file is to be read.
constexpr std::string data::DataOptions::*kSources[] = {
    &data::DataOptions::text, &data::DataOptions::tokens, &data::DataOptions::pairs,
    &data::DataOptions::table};
constexpr std::string data::DataOptions::*kHeldBackSources[] = {
    &data::DataOptions::validation_text, &data::DataOptions::validation_tokens};

template <class Fields>
bool is_any_set(const data::DataOptions& data, const Fields& fields) {
  return std::ranges::any_of(fields, [&](auto field) { return !(data.*field).empty(); });
}

void set_checked(RunSettings& settings, const std::string& argument) {
  const std::vector<std::string> before = settings.config.values();
  settings.config.set(argument);
  const std::vector<std::string> after = settings.config.values();
  for (std::size_t i = 0; i < after.size(); ++i) {
    const std::string key = after[i].substr(0, after[i].find(' '));
    if (after[i] == before[i] || is_evaluation_key(key)) continue;
    fail(ErrorCode::kInvalidArgument,
         "{} has no effect on an evaluation, which computes losses of a model as it was saved, on "
         "every rank with the whole of it. Leave it out; these may be set: {}",
         key, fmt::join(kEvaluationKeys, " "));
  }
}

// Which data the arguments name, if any; else it stays that of the run.
struct NamedData {
  bool any = false;
  bool held_back = false;  // data.validation_*
};

NamedData apply_arguments(RunSettings& settings, const EvaluationRequest& request) {
  data::DataOptions& data = settings.options.data;
  const data::DataOptions stored = data;
  for (const auto field : kSources) (data.*field).clear();
  for (const auto field : kHeldBackSources) (data.*field).clear();
  data.mixture.clear();
  data.field.clear();
  data.tokenizer.clear();
  settings.config.read_environment();
  for (const std::string& argument : request.settings) set_checked(settings, argument);
  const NamedData named{.any = is_any_set(data, kSources) || !data.mixture.empty(),
                        .held_back = is_any_set(data, kHeldBackSources)};
  if (named.any) return named;
  const data::DataOptions given = data;
  for (const auto field : kSources) data.*field = stored.*field;
  data.mixture = stored.mixture;
  if (!named.held_back) {
    for (const auto field : kHeldBackSources) data.*field = stored.*field;
  }
  data.field = given.field.empty() ? stored.field : given.field;
  data.tokenizer = given.tokenizer.empty() ? stored.tokenizer : given.tokenizer;
  return named;
}

void check_evaluated_data(const EvaluationSettings& made, const NamedData& named) {
  const data::DataOptions& data = made.options.data;
  if (!is_any_set(data, kSources) && data.mixture.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "{} was saved without data. Give some to evaluate it on: data.text=FILE, or data.tokens, "
         "data.pairs",
         made.options.init_from);
  }
  if (data.table.empty()) return;
  if (named.any || made.part == EvaluatedPart::kAll) {
    fail(ErrorCode::kUnsupported,
         "the numbers of data.table = {} are scaled by the rows that a run was trained on, so only "
         "what that run holds back of its own table can be evaluated. Leave data.table and --split "
         "out",
         data.table);
  }
}

// The folder of the run that a checkpoint lies in; empty: in none.
fs::path run_of(const fs::path& checkpoint) {
  const fs::path run = fs::absolute(checkpoint).lexically_normal().parent_path().parent_path();
  return RunFolder::is_run(run) ? run : fs::path();
}

}  // namespace

EvaluationSettings evaluation_settings(const EvaluationRequest& request, const fs::path& folder,
                                       const Warn& warn) {
  EvaluationSettings made;
  RunSettings settings;
  RunOptions& options = settings.options;
  std::uint64_t validated = kAllSequences;
  if (is_foreign(folder)) {
    options.train.precision = plan::Precision::kF32;
    options.train.batch.micro = kUsualEvaluatedBatch;
  } else {
    made.checkpoint = open_checkpoint(folder, warn);
    made.run = run_of(made.checkpoint->folder);
    settings.config.read_toml(made.checkpoint->config,
                              (made.checkpoint->folder / kConfigFile).string());
    validated = validated_sequences(options);
    const RunOptions stored = options;
    options = for_evaluation(stored);
  }
  const int stored_sequence = options.train.batch.sequence;
  const NamedData named = apply_arguments(settings, request);
  find_data(options);
  options.train.parallel = {};
  options.train.offload = {};
  options.train.survive = {};
  options.train.memory_auto = false;
  options.train.recompute = RecomputeChoice::kFull;  // keeps least
  options.init_from = folder.string();
  if (!made.checkpoint) options.train.model = model_of_start(options);

  made.options = options;
  const bool own = !named.any && !named.held_back;
  made.part = request.part.value_or(named.any && !named.held_back ? EvaluatedPart::kAll
                                                                  : EvaluatedPart::kValidation);
  check_evaluated_data(made, named);
  if (options.train.precision == plan::Precision::kFp8) {
    fail(ErrorCode::kUnsupported,
         "train.precision = \"fp8\" computes with scales that training finds; give train.precision "
         "= \"bf16\" to evaluate the parameters");
  }
  made.sequences = kAllSequences;
  if (request.batches && *request.batches > 0) {
    made.sequences = *request.batches * static_cast<std::uint64_t>(options.train.batch.micro);
  } else if (!request.batches && own && made.part == EvaluatedPart::kValidation &&
             options.train.batch.sequence == stored_sequence) {
    made.sequences = validated;
  }
  return made;
}

}  // namespace lockstep::train
