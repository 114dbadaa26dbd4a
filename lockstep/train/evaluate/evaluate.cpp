#include "lockstep/train/evaluate/evaluate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/parallel/communication/machines.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/dataset/shared_data.h"
#include "lockstep/train/evaluate/counted_targets.h"
#include "lockstep/train/model_io/model_of_start.h"
#include "lockstep/train/run/start.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr int kStoppedExitCode = 130;  // as shells have it

// The leader's choice: a running run may save another checkpoint meanwhile.
fs::path chosen_folder(const EvaluationRequest& request, RunGroup group, const Warn& warn) {
  std::string chosen;
  group.together([&] {
    if (!group.leads()) return;
    if (!fs::is_directory(request.model)) {
      fail(ErrorCode::kInvalidArgument,
           "{} is not a folder; give the folder of a run, of a checkpoint, or of a Hugging Face "
           "model",
           request.model.string());
    }
    const fs::path path = choose_checkpoint(request.model, request.checkpoint);
    chosen = is_foreign(path) ? path.string() : open_checkpoint(path, warn).folder.string();
  });
  return group.texts(chosen).front();
}

class Evaluator {
 public:
  Evaluator(const EvaluationRequest& request, RunGroup group, const StopSignal& stop,
            const EvaluationListener& listener)
      : group_(group), stop_(stop), listener_(listener) {
    const Warn warn = [&](const std::string& text) {
      if (group_.leads() && listener_.warning) listener_.warning(text);
    };
    const fs::path folder = chosen_folder(request, group_, warn);
    group_.together([&] { settings_ = evaluation_settings(request, folder, warn); });
    TrainOptions& train = settings_.options.train;
    if (group_.world() != nullptr) {
      train.node_place = parallel::node_place(group_.world()->machines(), group_.rank());
    }
    open_data();
    group_.together([&] {
      train = with_data(train, dataset_);
      check_device(train);
      ops_ = make_ops(train);
      make_replica(warn);
    });
    source_ = make_source(train, dataset_, replica_->setup().shape);
    source_->limit_validation(settings_.sequences);
    if (source_->validation_batches() == 0) {
      fail(ErrorCode::kInvalidArgument,
           "the evaluated part of {} has no token to predict; give more data, or --split all",
           data_path());
    }
  }

  std::optional<Evaluation> run() {
    const TrainOptions& train = settings_.options.train;
    const Objective objective = objective_of(train);
    const nn::BatchShape shape = replica_->setup().shape;
    if (objective == Objective::kMaskedToken) {
      correct_.emplace(shape.tokens(), vocabulary_of(train), replica_->setup().dtype, *ops_);
    }
    if (objective == Objective::kNextToken && dataset_.tokenizer) {
      bytes_of_ = bytes_of_tokens(*dataset_.tokenizer);
    }
    group_.barrier();
    const auto begin = SteadyClock::now();
    const Validation taken =
        validation_loss({.replica = *replica_,
                         .source = *source_,
                         .group = group_,
                         .workers = static_cast<std::uint64_t>(group_.size()),
                         .worker = static_cast<std::uint64_t>(group_.rank()),
                         .evaluate = [&](const nn::Batch& batch) { return losses_of(batch); }},
                        stop_, [&](std::uint64_t done, std::uint64_t all) {
                          if (listener_.progress) listener_.progress(done, all);
                        });
    if (taken.cut) return std::nullopt;
    if (!taken.loss) {
      fail(ErrorCode::kInvalidArgument, "the evaluated part of {} has no target", data_path());
    }
    return result(*taken.loss, objective, seconds_since(begin));
  }

 private:
  const data::DataOptions& data() const { return settings_.options.data; }

  std::string data_path() const {
    for (const std::string* path : {&data().validation_text, &data().validation_tokens}) {
      if (settings_.part == EvaluatedPart::kValidation && !path->empty()) return *path;
    }
    for (const std::string* path : {&data().text, &data().tokens, &data().pairs}) {
      if (!path->empty()) return *path;
    }
    if (!data().mixture.empty()) return fmt::format("{}", fmt::join(data().mixture, ", "));
    return data().table;
  }

  // Token files go to temporary folders: a run that trains keeps its own. What it has of this data
  // is used.
  void open_data() {
    const std::vector<std::string> scratches = group_.texts(scratch_.path().string());
    std::vector<fs::path> found{scratch_.path(), scratches.front()};
    if (!settings_.run.empty()) found.push_back(RunFolder::data_of(settings_.run));
    RunOptions options = settings_.options;
    options.dir = scratch_.path().string();
    const StopDeadline deadline(stop_, kStoppedExitCode, [&] {
      std::error_code none;
      fs::remove_all(scratch_.path(), none);
    });
    dataset_ = open_shared_dataset(
        group_, &stop_,
        [&](std::string_view text) {
          if (listener_.notice) listener_.notice(std::string(text));
        },
        [&](const Tell& tell) {
          const std::shared_ptr<const data::Tokenizer> of_model = tokenizer_of_start(options);
          if (!of_model && data().tokenizer.empty() &&
              !(data().text.empty() && data().pairs.empty())) {
            fail(ErrorCode::kInvalidArgument,
                 "the model in {} has no tokenizer to read {} with. Give data.tokenizer, the "
                 "tokenizer.json of the tokens that it was trained on, or data.tokens",
                 options.init_from, data_path());
          }
          Dataset dataset = open_dataset(options.data, {found, scratch_.path()}, tell, of_model);
          if (of_model && dataset.tokenizer && of_model->json() != dataset.tokenizer->json()) {
            fail(ErrorCode::kInvalidArgument,
                 "the tokenizer of {} is not the one that the model in {} was trained with, so the "
                 "same ids would mean different tokens. Leave data.tokenizer out; where the text "
                 "of the run has changed since, name it (data.text=...)",
                 data_path(), options.init_from);
          }
          return dataset;
        });
    dataset_.validates_all = settings_.part == EvaluatedPart::kAll;
    for (Dataset& part : dataset_.mixture) part.validates_all = dataset_.validates_all;
  }

  void make_replica(const Warn& warn) {
    const TrainOptions& train = settings_.options.train;
    nn::Model model = whole_model_of(train);
    nn::MemoryPlan plan = nn::plan_memory(model, setup_of(train), *ops_, nn::OptimizerState::kNone);
    replica_ = std::make_unique<nn::Replica>(std::move(model), std::move(plan), *ops_);
    if (!settings_.checkpoint) {
      load_parameters(train, settings_.options.init_from, *replica_, warn);
      return;
    }
    read_parameters(*settings_.checkpoint, replica_->flat(), replica_->states().master);
    replica_->round_parameters();
  }

  Tensor losses_of(const nn::Batch& batch) {
    const Tensor losses =
        correct_ ? replica_->evaluate(batch, correct_->logits()) : replica_->evaluate(batch);
    if (correct_) correct_->add(batch);
    if (ops::is_given(batch.targets)) {
      for (const std::int32_t target : batch.targets.as<const std::int32_t>()) {
        if (target == ops::kNoTarget) continue;
        ++targets_;
        const auto id = static_cast<std::size_t>(target);
        if (id < bytes_of_.size()) bytes_ += bytes_of_[id];
      }
    } else {
      targets_ += static_cast<std::uint64_t>(nn::count_targets(batch));
    }
    return losses;
  }

  Evaluation result(double loss, Objective objective, double seconds) {
    const std::array<double, 3> mine = {static_cast<double>(targets_), static_cast<double>(bytes_),
                                        static_cast<double>(correct_ ? correct_->count() : 0)};
    const std::vector<double> all = group_.numbers(mine);
    std::array<double, 3> sums = {};
    for (std::size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
    const TrainOptions& train = settings_.options.train;
    Evaluation made;
    made.origin = settings_.options.init_from;
    if (settings_.checkpoint) made.step = settings_.checkpoint->state.steps;
    made.model = replica_->model().name();
    made.parameters = replica_->flat().count();
    made.precision = plan::name(train.precision);
    made.hardware = ops_->name();
    made.data = data_path();
    made.ranks = group_.size();
    made.loss = loss;
    const bool of_tokens = objective != Objective::kRegress;
    if (of_tokens) made.perplexity = std::exp(loss);
    if (objective == Objective::kNextToken && sums[1] > 0) {
      made.bits_per_byte = loss * sums[0] / std::numbers::ln2 / sums[1];
    }
    if (correct_) made.accuracy = sums[2] / sums[0];
    made.sequences = source_->validated();
    made.sequence_length = static_cast<std::uint64_t>(replica_->setup().shape.sequence);
    made.available = source_->held_back();
    made.targets = static_cast<std::uint64_t>(sums[0]);
    made.bytes = static_cast<std::uint64_t>(sums[1]);
    made.seconds = seconds;
    made.tokens_per_second = static_cast<double>(made.sequences * made.sequence_length) / seconds;
    return made;
  }

  RunGroup group_;
  const StopSignal& stop_;
  const EvaluationListener& listener_;
  ScratchFolder scratch_;
  EvaluationSettings settings_;
  Dataset dataset_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<nn::Replica> replica_;
  std::unique_ptr<BatchSource> source_;
  std::optional<CorrectTargets> correct_;  // of masked tokens
  std::vector<std::uint32_t> bytes_of_;    // each token
  std::uint64_t targets_ = 0;              // of this rank, as the next
  std::uint64_t bytes_ = 0;
};

}  // namespace

std::optional<Evaluation> evaluate(const EvaluationRequest& request, RunGroup group,
                                   const StopSignal& stop, const EvaluationListener& listener) {
  try {
    return Evaluator(request, group, stop, listener).run();
  } catch (const StoppedBeforeTheFirstStep&) {
    return std::nullopt;
  }
}

}  // namespace lockstep::train
