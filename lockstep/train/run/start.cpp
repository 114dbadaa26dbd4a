#include "lockstep/train/run/start.h"

#include <fmt/format.h>

#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/text.h"
#include "lockstep/io/sharded_safetensors.h"
#include "lockstep/nn/hugging_face/hugging_face.h"
#include "lockstep/train/dataset/context_source.h"
#include "lockstep/train/model_io/model_of_start.h"
#include "lockstep/train/run/samples.h"

namespace lockstep::train {

Objective objective_of(const TrainOptions& options) {
  if (translates(options)) return Objective::kTranslate;
  switch (family_of(options)) {
    case ModelFamily::kBert:
      return Objective::kMaskedToken;
    case ModelFamily::kLinear:
      return Objective::kRegress;
    default:
      return Objective::kNextToken;
  }
}

std::int64_t vocabulary_of(const TrainOptions& options) {
  if (has_shape(options)) return static_cast<std::int64_t>(shape_of(options).vocabulary);
  return options.model.vocabulary;
}

TrainOptions with_data(TrainOptions options, const Dataset& dataset) {
  ModelChoice& model = options.model;
  if (!model.name.empty()) return options;
  if (family_of(options) == ModelFamily::kLinear) {
    if (model.features == 0) model.features = static_cast<int>(dataset.features);
  } else if (model.vocabulary == 0) {
    const bool lacks_mask = objective_of(options) == Objective::kMaskedToken && dataset.tokenizer &&
                            !dataset.tokenizer->special(data::Special::kMask);
    model.vocabulary = static_cast<int>(dataset.vocabulary()) + (lacks_mask ? 1 : 0);
  }
  return options;
}

TrainOptions with_data(TrainOptions options, const data::DataOptions& data) {
  const ModelChoice& model = options.model;
  const bool linear = family_of(options) == ModelFamily::kLinear;
  const bool open = linear ? model.features == 0 : model.vocabulary == 0;
  const bool given = !(data.text.empty() && data.tokens.empty() && data.mixture.empty() &&
                       data.pairs.empty() && data.table.empty());
  if (!model.name.empty() || !open || !given) return options;
  const ScratchFolder scratch;
  return with_data(std::move(options), open_dataset(data, scratch.path()));
}

std::unique_ptr<BatchSource> make_source(const TrainOptions& options, const Dataset& dataset,
                                         const nn::BatchShape& shape) {
  const int ranks = options.parallel.context;
  nn::BatchShape whole = shape;
  whole.sequence *= ranks;
  whole.source_sequence *= ranks;
  auto source = make_batch_source(dataset, {.objective = objective_of(options),
                                            .shape = whole,
                                            .vocabulary = vocabulary_of(options),
                                            .seed = static_cast<std::uint64_t>(options.seed)});
  if (ranks == 1) return source;
  return make_context_source(std::move(source), context_of(options, whole.sequence));
}

namespace {

// "1,743 held back, a validation takes 450 of them (25.8 %)"
std::string describe_validation(const BatchSource& source) {
  const std::uint64_t all = source.held_back();
  const std::uint64_t taken = source.validated();
  if (all == 0) return "none held back";
  std::string text = fmt::format("{} held back, a validation takes ", format_count(all));
  if (taken == all) return text + "all of them";
  return text + fmt::format("{} of them ({:.2g} %)", format_count(taken),
                            100 * static_cast<double>(taken) / static_cast<double>(all));
}

}  // namespace

std::string describe(const data::DataOptions& options, const Dataset& dataset,
                     const BatchSource& source) {
  const std::string path = !options.text.empty()     ? options.text
                           : !options.tokens.empty() ? options.tokens
                           : !options.pairs.empty()  ? options.pairs
                                                     : options.table;
  std::string text = std::filesystem::path(path).filename().string() + ": ";
  if (!dataset.mixture.empty()) {
    std::uint64_t tokens = 0;
    for (const Dataset& part : dataset.mixture) tokens += part.training->size();
    text = fmt::format("mixture of {}: {} tokens, ", counted(dataset.mixture.size(), "file"),
                       format_count(tokens));
  }
  if (dataset.training) {
    text += fmt::format("{} tokens, ", format_count(dataset.training->size()));
  }
  if (dataset.vocabulary() > 0) {
    text +=
        fmt::format("{} kinds, ", format_count(static_cast<std::uint64_t>(dataset.vocabulary())));
  }
  return text + fmt::format("{} sequences an epoch, {}", format_count(source.sequences()),
                            describe_validation(source));
}

namespace {

// Why the tree does not give the same bits for other numbers of workers; empty if it does.
std::string tree_is_uneven(const TrainOptions& options) {
  if (options.parallel.reduction != parallel::Reduction::kTree) return "";
  const std::int64_t workers = options.batch.workers;
  const std::int64_t all = step_plan(options.batch).micro_batches();
  const auto is_power = [](std::int64_t n) {
    return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n));
  };
  if (is_power(workers) && all % workers == 0 && is_power(all / workers)) return "";
  return fmt::format(
      "parallel.reduction = \"tree\" gives the same bits on other numbers of workers only where "
      "workers and micro-batches per worker are powers of two; this run has {} micro-batches for "
      "{}",
      all, workers == 1 ? "one worker" : fmt::format("{} workers", workers));
}

}  // namespace

std::vector<std::string> unused(const RunOptions& options, const Dataset& dataset,
                                const BatchSource& source) {
  std::vector<std::string> texts;
  if (std::string text = source.left_out(); !text.empty()) texts.push_back(std::move(text));
  const optim::ScheduleOptions& schedule = options.train.schedule;
  if (options.steps < schedule.warmup_steps) {
    texts.push_back(fmt::format(
        "the run ends at step {}, before its warm-up of schedule.warmup_steps = {}: the "
        "learning rate rises to {:.3g} only, not to optimizer.learning_rate = {:g}",
        options.steps, schedule.warmup_steps, optim::learning_rate_at(schedule, options.steps),
        schedule.learning_rate));
  }
  if (std::string text = tree_is_uneven(options.train); !text.empty()) {
    texts.push_back(std::move(text));
  }
  const std::int64_t known = dataset.tokenizer ? dataset.vocabulary() : 0;
  if (known > 0 && vocabulary_of(options.train) > 2 * known) {
    texts.push_back(fmt::format(
        "the model has {} token ids, but the {} tokenizer only {}: most of the embedding "
        "is never used. Set data.tokenizer to the tokenizer of this model",
        vocabulary_of(options.train), dataset.tokenizer->kind(), known));
  }
  const std::string no_samples = cannot_sample(options, dataset);
  if (options.sample.every > 0 && !no_samples.empty()) {
    texts.push_back(fmt::format("sample.every = {}, but {}: the run writes no samples",
                                options.sample.every, no_samples));
  }
  return texts;
}

std::string batch_of_ranks(const TrainOptions& options, const Config& config) {
  const BatchChoice batch = solved(options.batch);
  if (config.given("train.global_batch_size")) return "";
  if (batch.most_workers > 0) {
    return fmt::format(
        "the batch is that of {} workers, with any number of them: {} sequences a step",
        batch.most_workers, batch.sequences);
  }
  if (batch.readers() == 1) return "";
  return fmt::format(
      "the batch follows the number of workers: {} x {} = {} sequences a step. With "
      "train.global_batch_size = {} it is the same for any --ranks",
      batch.readers(), batch.sequences / batch.readers(), batch.sequences, batch.sequences);
}

std::string changed_data(const std::string& was, const std::string& is) {
  if (was.empty() || was == is) return "";
  return fmt::format(
      "the data has changed: the checkpoint was trained on {}; now there are {}. The run continues "
      "with the new data. If that is not intended, put the old data back, or choose another "
      "run.dir",
      was, is);
}

void load_parameters(const TrainOptions& options, const std::filesystem::path& from,
                     nn::Replica& replica, const Warn& warn, RunGroup group) {
  const bool foreign = is_foreign(from);
  const std::vector<std::string> kinds =
      group.texts(foreign ? "is a folder of Hugging Face transformers" : "is not one");
  for (std::size_t rank = 1; rank < kinds.size(); ++rank) {
    if (kinds[rank] == kinds[0]) continue;
    fail(ErrorCode::kInvalidArgument,
         "run.init_from = {}: at rank {} it {}, at rank 0 it {}. With sharded states every rank "
         "reads its own shard: give all ranks the same folder",
         from.string(), rank, kinds[rank], kinds[0]);
  }
  if (!foreign) return load_checkpoint(from, replica, warn, group);
  group.together(
      [&] { nn::load_hugging_face(io::ShardedSafetensors(from), shape_of(options), replica); });
}

}  // namespace lockstep::train
