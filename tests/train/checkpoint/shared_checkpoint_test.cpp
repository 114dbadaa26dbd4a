// Checkpoints of workers that shard their states, as threads: any number of workers resumes from
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/nn/hugging_face/hugging_face.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/checkpoint/state_tensors.h"
#include "tests/train/model_io/hugging_face_fixture.h"
#include "tests/train/run/file_limit.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::shared_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using nn::Partition;
using parallel::Reduction;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kSequences = 8;
// That follow a checkpoint.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kStepsAfter = 3;
#else
constexpr int kStepsAfter = 20;
#endif

struct Way {
  int workers = 1;
  int stage = 0;
  Partition partition = Partition::kTensor;
  plan::Precision precision = plan::Precision::kF32;
};

TrainOptions options_of(const Way& way) {
  TrainOptions options = tiny_options(way.precision);
  options.batch = {.sequence = 7, .sequences = kSequences, .micro = 1, .workers = way.workers};
  options.parallel.reduction = way.workers == 3 ? Reduction::kFast : Reduction::kTree;
  options.parallel.zero = way.stage;
  options.parallel.partition = way.partition;
  options.threads = 1;
  return options;
}

struct Result {
  std::vector<double> losses;
  WholeStates restored;  // what there was before the first step
  WholeStates trained;
  std::vector<std::int64_t> steps;  // that each worker began with
  std::vector<std::string> warnings;
};

struct Plan {
  bool restores = false;
  int steps = 0;
  bool saves = false;
};

class SharedCheckpoints : public ::testing::Test {
 protected:
  Result run(const Way& way, const Plan& plan) const {
    const TrainOptions options = options_of(way);
    Result result;
    result.steps.resize(static_cast<std::size_t>(way.workers));
    std::mutex mutex;
    run_workers(options, [&](Trainer& trainer, Communicator* others) {
      RunGroup group(others);
      const bool by_all = trainer.replica().plan().sharding.any();
      if (plan.restores) {
        const auto warn = [&](const std::string& text) {
          if (group.leads()) result.warnings.push_back(text);
        };
        CheckpointFolder folder(run_);
        std::optional<TrainState> state;
        if (by_all) {
          state = folder.restore(trainer.replica(), warn, group);
        } else {
          if (group.leads()) state = folder.restore(trainer.replica(), warn);
          state = group.from_leader(state);
        }
        trainer.set_state(state.value());
        result.steps[static_cast<std::size_t>(group.rank())] = state->steps;
      }
      trainer.start();
      {
        const std::lock_guard lock(mutex);
        take_states(trainer.replica(), result.restored);
      }
      const std::vector<double> losses = train(trainer, plan.steps);
      if (group.leads()) result.losses = losses;
      if (plan.saves) save(trainer, group);
      group.barrier();
      const std::lock_guard lock(mutex);
      take_states(trainer.replica(), result.trained);
    });
    return result;
  }

  static std::vector<double> train(Trainer& trainer, int steps) {
    std::vector<double> losses;
    run_steps(trainer, steps, [&](const StepMetrics& metrics) { losses.push_back(metrics.loss); });
    return losses;
  }

  void save(Trainer& trainer, RunGroup& group) const {
    CheckpointFolder folder(run_);
    const CheckpointExtras extras{
        .state = trainer.state(), .config = "[model]\nlayers = 2\n", .tokenizer = ""};
    if (trainer.replica().plan().sharding.any()) {
      folder.save_by_all(trainer.replica(), extras, {}, group);
    } else if (group.leads()) {
      folder.save(trainer.replica(), extras, {});
    }
  }

  fs::path of_step(std::int64_t step) const { return CheckpointFolder(run_).path(step); }
  std::vector<std::string> names_in(const fs::path& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }

  ScratchFolder scratch_;
  const fs::path run_ = scratch_.path() / "run";
};

TEST_F(SharedCheckpoints, GoOnToTheBitWithAnyNumberOfWorkersAtAnyStage) {
  const Result alone = run({}, {.restores = false, .steps = 2 + kStepsAfter, .saves = false});
  for (const Partition partition : {Partition::kTensor, Partition::kLayer}) {
    fs::remove_all(run_);
    const Result saved = run({.workers = 4, .stage = 3, .partition = partition},
                             {.restores = false, .steps = 2, .saves = true});
    for (const int workers : {1, 2, 3, 8}) {
      for (int stage = 0; stage <= 3; ++stage) {
        if (workers == 1 && stage > 0) continue;
        const Way way{.workers = workers, .stage = stage, .partition = partition};
        const Result after = run(way, {.restores = true, .steps = kStepsAfter, .saves = false});
        EXPECT_THAT(after.steps, Each(2));
        EXPECT_EQ(after.restored, saved.trained) << workers << " workers, stage " << stage;
        for (std::size_t i = 0; i < std::size_t{kStepsAfter}; ++i) {
          if (workers == 3) {
            EXPECT_NEAR(after.losses[i], alone.losses[i + 2], 1e-5);
          } else {
            EXPECT_EQ(after.losses[i], alone.losses[i + 2]) << workers << ", stage " << stage;
          }
        }
      }
    }
  }
}

TEST_F(SharedCheckpoints, GoFromAnyWayToAnyOther) {
  const Way ways[] = {{.workers = 1, .stage = 0},
                      {.workers = 3, .stage = 2, .partition = Partition::kLayer},
                      {.workers = 2, .stage = 1},
                      {.workers = 2, .stage = 3, .precision = plan::Precision::kBf16},
                      {.workers = 5, .stage = 3, .partition = Partition::kLayer},
                      {.workers = 3, .stage = 1, .precision = plan::Precision::kBf16},
                      {.workers = 2, .stage = 0},
                      {.workers = 7, .stage = 2}};
  Result last = run(ways[0], {.restores = false, .steps = 1, .saves = true});
  std::int64_t step = 1;
  for (const Way& way : ways) {
    const Result next = run(way, {.restores = true, .steps = 1, .saves = true});
    EXPECT_THAT(next.steps, Each(step++));
    EXPECT_EQ(next.restored, last.trained) << way.workers << " workers, stage " << way.stage;
    EXPECT_NE(next.trained, last.trained);
    last = next;
  }
}

TEST_F(SharedCheckpoints, HoldOneFileOfEachWorkerAndAreReadWholeByOthers) {
  const Result saved =
      run({.workers = 4, .stage = 3}, {.restores = false, .steps = 1, .saves = true});
  EXPECT_THAT(names_in(of_step(1)),
              ElementsAre("config.toml", "manifest.json", "states-00001-of-00004.safetensors",
                          "states-00002-of-00004.safetensors", "states-00003-of-00004.safetensors",
                          "states-00004-of-00004.safetensors"));
  EXPECT_THAT(names_in(run_ / "checkpoints"), ElementsAre("step-00000001"));
  // Four parts as large as each other, but for their headers.
  const auto first = fs::file_size(of_step(1) / states_file_of(0, 4));
  EXPECT_NEAR(static_cast<double>(fs::file_size(of_step(1) / states_file_of(2, 4))),
              static_cast<double>(first), 0.2 * static_cast<double>(first));

  const Checkpoint checkpoint = open_checkpoint(run_, {});
  const auto states = open_states(checkpoint);
  EXPECT_EQ(states->names().size(), saved.trained.size());
  for (const auto& [name, values] : saved.trained) {
    const auto loaded = states->load(name);
    EXPECT_THAT(loaded.tensor.as<float>(), ::testing::ElementsAreArray(values)) << name;
  }
}

// One byte, the end, and the whole of a file.
TEST_F(SharedCheckpoints, ThatAreDamagedAreNamedAndAllGoOnFromTheOneBefore) {
  const Way way{.workers = 4, .stage = 3};
  const Result before = run(way, {.restores = false, .steps = 1, .saves = true});
  run(way, {.restores = true, .steps = 1, .saves = true});
  const std::string name = states_file_of(2, 4);
  const fs::path file = of_step(2) / name;
  const fs::path kept = scratch_.path() / "kept";
  fs::copy_file(file, kept);
  const auto flip = [&] {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-5, std::ios::end);
    bytes.put('\x7f');
  };
  const auto cut = [&] { fs::resize_file(file, fs::file_size(file) - 1); };
  const auto remove = [&] { fs::remove(file); };
  for (const std::function<void()>& damage : {std::function<void()>(flip), {cut}, {remove}}) {
    damage();
    for (const Way& reader :
         {way, Way{.workers = 2, .stage = 1}, Way{.workers = 3, .stage = 0}, Way{}}) {
      const Result after = run(reader, {.restores = true, .steps = 0, .saves = false});
      EXPECT_THAT(after.steps, Each(1));
      EXPECT_THAT(after.warnings, ElementsAre(AllOf(HasSubstr("step 2"), HasSubstr(name))));
      EXPECT_EQ(after.restored, before.trained);
    }
    fs::copy_file(kept, file, fs::copy_options::overwrite_existing);
    EXPECT_THAT(run(way, {.restores = true, .steps = 0, .saves = false}).steps, Each(2));
  }
}

TEST_F(SharedCheckpoints, WithAnotherNumberOfFilesThanTheirManifestAreRefused) {
  Manifest manifest{.state = {}, .files = {{"config.toml", {1, std::string(32, '0')}}}};
  const auto refusal = [&] {
    try {
      parse_manifest(format_manifest(manifest), "manifest.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(), HasSubstr("states.safetensors"));
  manifest.files[states_file_of(0, 3)] = manifest.files[states_file_of(2, 3)] = {};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("lists 2 files"), HasSubstr("-00001-of-00002")));
  manifest.files[states_file_of(1, 3)] = {};
  EXPECT_EQ(refusal(), "");
  manifest.files["states-x.safetensors"] = {};
  EXPECT_THAT(refusal(), HasSubstr("lists 4 files"));
  manifest.files.erase("states-x.safetensors");
  manifest.files["states.safetensors"] = {};
  EXPECT_THAT(refusal(), HasSubstr("states"));
}

// The error that each worker got.
template <class Work>
std::vector<std::string> refusals(int workers, ErrorCode code, const Work& work) {
  std::vector<std::string> all(static_cast<std::size_t>(workers));
  run_threads(workers, [&](Communicator& world) {
    try {
      work(world);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      all[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  return all;
}

// Of eight workers that hold whole blocks some hold none, so their files fit under the limit.
TEST_F(SharedCheckpoints, ThatOneWorkerCannotWriteAreNobodysAndLeaveWhatWasThere) {
  const Way way{.workers = 8, .stage = 3, .partition = Partition::kLayer};
  const Result before = run(way, {.restores = false, .steps = 1, .saves = true});
  const TrainOptions options = options_of(way);
  const auto heard = refusals(way.workers, ErrorCode::kSystem, [&](Communicator& world) {
    const auto ops = make_cpu_ops(1);
    const auto strategy = parallel::make_strategy(
        {.options = options.parallel, .optimizer = options.optimizer, .most_micro_batches = 1},
        &world);
    Trainer trainer(options, *ops, *strategy);
    RunGroup group(&world);
    trainer.start();
    train(trainer, 2);
    std::optional<FileLimit> limit;
    if (group.leads()) limit.emplace(2000);
    group.barrier();
    // The limit is the whole process's, and goes when all are done.
    std::optional<Error> failure;
    try {
      save(trainer, group);
    } catch (const Error& error) {
      failure = error;
    }
    group.barrier();
    if (failure) throw *failure;
  });
  EXPECT_THAT(heard, Each(AllOf(HasSubstr("rank "), HasSubstr("cannot write"),
                                HasSubstr("-of-00008.safetensors"))));
  EXPECT_THAT(names_in(run_ / "checkpoints"), ElementsAre("step-00000001"));
  EXPECT_EQ(run(way, {.restores = true, .steps = 0, .saves = false}).restored, before.trained);
}

TEST_F(SharedCheckpoints, ThatOneWorkerDoesNotSeeAreRefusedAtAll) {
  const fs::path other = scratch_.path() / "other";
  const auto own = [&](Communicator& world) {
    return CheckpointFolder(world.rank() == 1 ? other : run_);
  };
  EXPECT_THAT(
      refusals(3, ErrorCode::kInvalidArgument,
               [&](Communicator& world) { own(world).check_seen_by_all(RunGroup(&world)); }),
      Each(AllOf(HasSubstr("rank 1: "), HasSubstr(other.string()),
                 HasSubstr("storage that all ranks share"))));
  EXPECT_THAT(names_in(run_ / "checkpoints"), ElementsAre());

  const Way way{.workers = 3, .stage = 3};
  run(way, {.restores = false, .steps = 1, .saves = true});
  const TrainOptions options = options_of(way);
  const auto restore = [&](Communicator& world) {
    const auto ops = make_cpu_ops(1);
    const auto strategy = parallel::make_strategy(
        {.options = options.parallel, .optimizer = options.optimizer, .most_micro_batches = 3},
        &world);
    Trainer trainer(options, *ops, *strategy);
    own(world).restore(trainer.replica(), {}, RunGroup(&world));
  };
  EXPECT_THAT(refusals(3, ErrorCode::kInvalidArgument, restore),
              Each(AllOf(HasSubstr("rank 1 cannot read"), HasSubstr("manifest.json is damaged"),
                         HasSubstr("missing"))));
  // Another run's checkpoint of the same step is none either.
  fs::copy(run_, other, fs::copy_options::recursive);
  EXPECT_THAT(refusals(3, ErrorCode::kInvalidArgument, restore), Each(""));
  fs::remove_all(run_);
  run({.workers = 3, .stage = 3, .precision = plan::Precision::kBf16},
      {.restores = false, .steps = 1, .saves = true});
  EXPECT_THAT(refusals(3, ErrorCode::kInvalidArgument, restore), Each(HasSubstr("of rank 1")));
}

TEST_F(SharedCheckpoints, OfOtherModelsAreRefusedAtAll) {
  const Way way{.workers = 2, .stage = 3};
  run(way, {.restores = false, .steps = 1, .saves = true});
  TrainOptions options = options_of(way);
  options.model.hidden = 24;
  EXPECT_THAT(refusals(2, ErrorCode::kInvalidArgument,
                       [&](Communicator& world) {
                         const auto ops = make_cpu_ops(1);
                         const auto strategy =
                             parallel::make_strategy({.options = options.parallel,
                                                      .optimizer = options.optimizer,
                                                      .most_micro_batches = 4},
                                                     &world);
                         Trainer trainer(options, *ops, *strategy);
                         CheckpointFolder(run_).restore(trainer.replica(), {}, RunGroup(&world));
                       }),
              Each(HasSubstr("another model")));
}

TEST(SharedModels, OfHuggingFaceAreReadInPartsAsTheyAreWhole) {
  for (const char* model : {"gpt2", "llama", "bert"}) {
    const Fixture fixture(model);
    WholeStates whole;
    for (const Way& way : {Way{}, Way{.workers = 3, .stage = 3}, Way{.workers = 2, .stage = 1},
                           Way{.workers = 3, .stage = 3, .partition = Partition::kLayer},
                           Way{.workers = 2, .stage = 2, .precision = plan::Precision::kBf16}}) {
      TrainOptions options = fixture.options;
      options.precision = way.precision;
      options.parallel.zero = way.stage;
      options.parallel.partition = way.partition;
      options.batch.workers = way.workers;
      WholeStates states;
      std::mutex mutex;
      run_threads(way.workers, [&](Communicator& world) {
        const auto ops = make_cpu_ops(1);
        const auto strategy = parallel::make_strategy(
            {.options = options.parallel, .optimizer = options.optimizer, .most_micro_batches = 1},
            way.workers > 1 ? &world : nullptr);
        Trainer trainer(options, *ops, *strategy);
        nn::load_hugging_face(fixture.file, shape_of(fixture.options), trainer.replica(),
                              "parameter.");
        const std::lock_guard lock(mutex);
        take_states(trainer.replica(), states);
      });
      if (way.workers == 1) whole = states;
      EXPECT_EQ(states, whole) << model << ", " << way.workers << " workers";
    }
  }
}

}  // namespace
}  // namespace lockstep::train::shared_checkpoint_test
