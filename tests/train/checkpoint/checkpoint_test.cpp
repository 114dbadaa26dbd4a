#include "lockstep/train/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/io/staged_folder.h"
#include "tests/train/run/file_limit.h"

namespace lockstep::train::checkpoint_test {

namespace fs = std::filesystem;
using plan::Precision;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kLength = 5;
constexpr int kVocabulary = 13;
constexpr std::int32_t kTokens[] = {1, 7, 3, 12, 0};
constexpr std::int32_t kTargets[] = {7, 3, 12, 0, 5};

TrainOptions small_run(Precision precision) {
  TrainOptions options;
  options.model.layers = 1;
  options.model.hidden = 8;
  options.model.heads = 2;
  options.model.vocabulary = kVocabulary;
  options.model.positions = 7;
  options.batch.sequence = kLength;
  options.precision = precision;
  options.schedule.learning_rate = 1e-2;
  options.loss_scale.growth_interval = 2;
  return options;
}

// A trainer with all that it needs, and a batch to learn.
struct Learner {
  explicit Learner(const TrainOptions& options)
      : ops(make_reference_ops()), trainer(options, *ops) {}

  void steps(int count) {
    std::vector<std::int32_t> tokens(std::begin(kTokens), std::end(kTokens));
    std::vector<std::int32_t> targets(std::begin(kTargets), std::end(kTargets));
    nn::Batch batch;
    batch.shape = {.batch = 1, .sequence = kLength};
    batch.tokens = tensor_of(std::span(tokens), {1, kLength});
    batch.targets = tensor_of(std::span(targets), {1, kLength});
    for (int i = 0; i < count; ++i) trainer.step({&batch, 1});
  }
  void save(const fs::path& folder, const CheckpointOptions& keep = {}) {
    CheckpointFolder(folder).save(
        trainer.replica(),
        {.state = trainer.state(), .config = "[model]\nlayers = 1\n", .tokenizer = "{\"kind\": 1}"},
        keep);
  }
  void save_as(const fs::path& folder, std::int64_t step, const CheckpointOptions& keep = {}) {
    trainer.set_state({.steps = step, .updates = step});
    save(folder, keep);
  }
  // True where there was something to restore; what was warned of is in `warnings`.
  bool restore(const fs::path& folder) {
    const auto state = CheckpointFolder(folder).restore(
        trainer.replica(), [&](const std::string& text) { warnings.push_back(text); });
    if (state) trainer.set_state(*state);
    return state.has_value();
  }
  // The bits of all flat buffers but the gradients.
  std::string bits() {
    std::string bits;
    const nn::States& states = trainer.replica().states();
    for (const Tensor& buffer : {states.parameters, states.master, states.first_moment,
                                 states.second_moment, states.velocity}) {
      bits.append(reinterpret_cast<const char*>(buffer.data()), buffer.bytes());
    }
    return bits;
  }

  std::unique_ptr<Ops> ops;
  Trainer trainer;
  std::vector<std::string> warnings;
};

class Checkpoints : public ::testing::Test {
 protected:
  fs::path of_step(std::int64_t step) const { return CheckpointFolder(run_).path(step); }
  std::vector<std::int64_t> steps() const { return CheckpointFolder(run_).steps(); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run_ / "checkpoints")) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // What is said of a folder; empty where nothing is.
  static std::string refusal(const fs::path& path, ErrorCode code) {
    try {
      open_checkpoint(path, {});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "";
  }

  // Writes a byte after each checkpoint.
  [[noreturn]] void save_until_killed(Learner& run, std::int64_t step,
                                      const CheckpointOptions& keep, int progress) const {
    try {
      for (;; ++step) {
        run.save_as(run_, step, keep);
        if (::write(progress, "x", 1) != 1) break;
      }
    } catch (const Error&) {
    }
    ::_exit(1);
  }

  ScratchFolder scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
  const std::filesystem::path run_ = folder_ / "run";
};

TEST_F(Checkpoints, BringBackEveryBitInEveryPrecisionAndWithEveryOptimizer) {
  for (const Precision precision : plan::kAllPrecisions) {
    for (const auto kind : {optim::OptimizerKind::kAdamW, optim::OptimizerKind::kSgd}) {
      fs::remove_all(run_);
      TrainOptions options = small_run(precision);
      options.optimizer.kind = kind;
      Learner first(options);
      first.steps(3);
      first.save(run_);
      const std::string saved = first.bits();
      options.seed = 2;  // other initial parameters, so that nothing is equal by chance
      Learner second(options);
      ASSERT_TRUE(second.restore(run_));
      EXPECT_THAT(second.warnings, IsEmpty());
      EXPECT_EQ(second.bits(), saved) << name(precision);
      EXPECT_EQ(second.trainer.state().steps, 3);
      EXPECT_EQ(second.trainer.state().updates, first.trainer.state().updates);
      EXPECT_EQ(second.trainer.state().loss_scale, first.trainer.state().loss_scale);

      first.steps(2);
      second.steps(2);
      EXPECT_EQ(second.bits(), first.bits()) << name(precision);
    }
  }
}

TEST_F(Checkpoints, OfOnePrecisionGoOnInAnother) {
  Learner wide(small_run(Precision::kF32));
  wide.steps(2);
  wide.save(run_);
  Learner narrow(small_run(Precision::kBf16));
  ASSERT_TRUE(narrow.restore(run_));
  const nn::States& from = wide.trainer.replica().states();
  const nn::States& to = narrow.trainer.replica().states();
  const auto master = to.master.as<const float>();
  const auto rounded = to.parameters.as<const BFloat16>();
  EXPECT_EQ(std::memcmp(master.data(), from.master.data(), from.master.bytes()), 0);
  for (std::size_t i = 0; i < master.size(); ++i) EXPECT_EQ(rounded[i], to_bfloat16(master[i]));

  Learner scaled(small_run(Precision::kF16));
  const auto initial = scaled.trainer.state().loss_scale;
  scaled.steps(2);
  EXPECT_NE(scaled.trainer.state().loss_scale, initial);
  ASSERT_TRUE(scaled.restore(run_));
  EXPECT_EQ(scaled.trainer.state().loss_scale, initial);
  scaled.save(run_);
  ASSERT_TRUE(wide.restore(run_));
  EXPECT_EQ(wide.trainer.state().loss_scale, std::nullopt);
}

TEST_F(Checkpoints, HoldConfigAndTokenizer) {
  Learner run(small_run(Precision::kF32));
  run.steps(1);
  run.save(run_);
  for (const fs::path& path : {run_, of_step(1)}) {
    const Checkpoint checkpoint = open_checkpoint(path, {});
    EXPECT_EQ(checkpoint.folder, of_step(1));
    EXPECT_EQ(checkpoint.state.steps, 1);
    EXPECT_EQ(checkpoint.config, "[model]\nlayers = 1\n");
    EXPECT_EQ(checkpoint.tokenizer, "{\"kind\": 1}");
    const nn::FlatParameters& flat = run.trainer.replica().flat();
    std::vector<float> buffer(flat.elements(), -1.f);
    read_parameters(checkpoint, flat, tensor_of(std::span(buffer)));
    EXPECT_EQ(std::memcmp(buffer.data(), run.trainer.replica().states().master.data(),
                          buffer.size() * sizeof(float)),
              0);
  }
}

TEST_F(Checkpoints, FindEveryFlippedBit) {
  Learner run(small_run(Precision::kF32));
  run.save(run_);
  const fs::path folder = of_step(0);
  for (const char* name :
       {"manifest.json", "config.toml", "tokenizer.json", "states.safetensors"}) {
    const fs::path file = folder / name;
    const std::string whole = read_file(file);
    const std::size_t stride = std::max<std::size_t>(whole.size() / 300, 1);
    for (std::size_t at = 0; at < whole.size(); at += stride) {
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      const auto put = [&](char byte) {
        stream.seekp(static_cast<std::streamoff>(at));
        stream.put(byte).flush();
      };
      put(static_cast<char>(whole[at] ^ (1 << (at % 8))));
      ASSERT_THAT(refusal(folder, ErrorCode::kProtocol), HasSubstr("damaged")) << name << " " << at;
      put(whole[at]);
    }
    ASSERT_EQ(refusal(folder, ErrorCode::kProtocol), "");
  }
}

TEST_F(Checkpoints, FindTruncatedLongerAndMissingFiles) {
  Learner run(small_run(Precision::kF32));
  run.save(run_);
  const fs::path folder = of_step(0);
  for (const char* name :
       {"manifest.json", "config.toml", "tokenizer.json", "states.safetensors"}) {
    const fs::path file = folder / name;
    const std::string whole = read_file(file);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, whole.size() - 1}) {
      fs::resize_file(file, bytes);
      EXPECT_THAT(refusal(folder, ErrorCode::kProtocol), HasSubstr("damaged")) << name;
      write_file(file, whole);
    }
    write_file(file, whole + "\n");
    EXPECT_THAT(refusal(folder, ErrorCode::kProtocol), HasSubstr("damaged")) << name;
    fs::remove(file);
    EXPECT_THAT(refusal(folder, ErrorCode::kProtocol), HasSubstr(name));
    write_file(file, whole);
  }
}

TEST_F(Checkpoints, FallBackLoudlyToTheOneBefore) {
  Learner run(small_run(Precision::kF32));
  run.steps(1);
  run.save(run_);
  const std::string earlier = run.bits();
  run.steps(1);
  run.save(run_);
  fs::resize_file(of_step(2) / "states.safetensors", 1000);
  ASSERT_TRUE(run.restore(run_));
  EXPECT_EQ(run.bits(), earlier);
  EXPECT_EQ(run.trainer.state().steps, 1);
  EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("skipping the damaged checkpoint of step 2")));

  run.steps(1);
  run.save(run_);  // in place of the damaged one
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
  ASSERT_TRUE(run.restore(run_));
  EXPECT_EQ(run.warnings.size(), 1u);

  for (const int step : {1, 2}) fs::remove(of_step(step) / "manifest.json");
  try {
    run.restore(run_);
    FAIL() << "a run whose every checkpoint is damaged began anew";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kProtocol);
    EXPECT_THAT(error.what(), HasSubstr("discard the run"));
  }
  // Who only reads throws nothing away.
  try {
    open_checkpoint(run_, {});
    FAIL() << "a damaged checkpoint was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kProtocol);
    EXPECT_THAT(error.what(), HasSubstr("no model can be read; restore a copy of one"));
  }
}

TEST_F(Checkpoints, AFolderOfAnotherStepIsNotBelieved) {
  Learner run(small_run(Precision::kF32));
  run.save_as(run_, 3);
  fs::rename(of_step(3), of_step(4));
  EXPECT_THAT(refusal(run_, ErrorCode::kProtocol), HasSubstr("it holds step 3"));
}

TEST_F(Checkpoints, StayByNumberAndByMultiple) {
  Learner run(small_run(Precision::kF32));
  const CheckpointOptions keep{.every = 1, .keep_last = 2, .keep_every = 3};
  for (const int step : {1, 2, 3, 4, 5, 6, 7, 8}) run.save_as(run_, step, keep);
  EXPECT_THAT(steps(), ElementsAre(8, 7, 6, 3));
  run.save_as(run_, 5,
              {.every = 1, .keep_last = 1, .keep_every = 0});  // an earlier one, saved again
  EXPECT_THAT(steps(), ElementsAre(8, 7, 6, 5));
  run.save_as(run_, 123'456'789, keep);
  EXPECT_EQ(steps().front(), 123'456'789);
}

TEST_F(Checkpoints, OfAnotherModelOrOptimizerAreRefusedByWhatDiffers) {
  Learner run(small_run(Precision::kF32));
  EXPECT_FALSE(run.restore(run_));
  run.steps(1);
  run.save(run_);
  const auto why = [&](const TrainOptions& options) -> std::string {
    Learner other(options);
    try {
      other.restore(run_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  TrainOptions options = small_run(Precision::kF32);
  options.model.vocabulary = 14;
  EXPECT_THAT(why(options),
              HasSubstr("its 'embedding.tokens' is [13, 8], but the model's is [14, 8]"));
  options = small_run(Precision::kF32);
  options.model.layers = 2;
  EXPECT_THAT(why(options), HasSubstr("it has no 'layer.1."));
  options = small_run(Precision::kF32);
  options.optimizer.kind = optim::OptimizerKind::kSgd;
  EXPECT_THAT(why(options), HasSubstr("with the optimizer's first moment"));

  options = small_run(Precision::kF32);
  options.model.layers = 2;
  Learner two_layers(options);
  two_layers.steps(2);
  two_layers.save(run_);
  EXPECT_THAT(why(small_run(Precision::kF32)), HasSubstr("the model has no 'layer.1."));
}

TEST_F(Checkpoints, BeforeTheFirstUpdateAnyOptimizerMayBegin) {
  Learner run(small_run(Precision::kF32));
  nn::States states;
  states.master = run.trainer.replica().states().master;
  CheckpointFolder(run_).save(run.trainer.replica().flat(), states, {}, {});
  Learner other(small_run(Precision::kF32));
  other.steps(2);
  ASSERT_TRUE(other.restore(run_));
  EXPECT_EQ(other.bits(), run.bits());
}

TEST_F(Checkpoints, LeaveForeignFoldersAlone) {
  fs::create_directories(run_ / "checkpoints" / "step-12");
  try {
    CheckpointFolder folder(run_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("holds 'step-12'"));
  }
  EXPECT_THAT(refusal(folder_ / "none", ErrorCode::kInvalidArgument), HasSubstr("does not exist"));
  EXPECT_THAT(refusal(folder_, ErrorCode::kInvalidArgument), HasSubstr("neither"));
  fs::remove(run_ / "checkpoints" / "step-12");
  EXPECT_THAT(refusal(run_, ErrorCode::kInvalidArgument), HasSubstr("no checkpoint yet"));
  fs::remove(run_ / "checkpoints");
  write_file(run_ / "checkpoints", "");
  EXPECT_THROW(CheckpointFolder{run_}, Error);
}

TEST_F(Checkpoints, WithoutRoomLeaveWhatWasThereAndNothingElse) {
  Learner run(small_run(Precision::kF32));
  run.steps(1);
  run.save(run_);
  const std::string before = run.bits();
  run.steps(1);
  for (const rlim_t bytes : {0, 10, 5000}) {
    const FileLimit limit(bytes);
    try {
      run.save(run_);
      FAIL() << "there was no room";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kSystem);
      EXPECT_THAT(error.what(), HasSubstr("cannot write"));
    }
  }
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
  ASSERT_TRUE(run.restore(run_));
  EXPECT_EQ(run.bits(), before);
}

// Whenever the process ends: what has a checkpoint's name is whole, and what has not goes away.
TEST_F(Checkpoints, SurviveAKilledProcess) {
  Learner run(small_run(Precision::kF32));
  const CheckpointOptions keep{.every = 1, .keep_last = 2};
  for (int round = 0; round < 12; ++round) {
    Pipe saved = make_pipe();
    const std::int64_t first = 100 * round + 1;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_until_killed(run, first, keep, saved.write_end.get());
    saved.write_end.reset();
    char byte = 0;
    for (int i = 0; i <= round % 3; ++i) ASSERT_EQ(::read(saved.read_end.get(), &byte, 1), 1);
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ASSERT_TRUE(run.restore(run_));
    EXPECT_THAT(run.warnings, IsEmpty());
    EXPECT_GE(run.trainer.state().steps, first + round % 3);
    for (const std::string& name : names()) EXPECT_FALSE(io::is_staged_name(name)) << name;
    for (const std::int64_t step : steps()) EXPECT_NO_THROW(open_checkpoint(of_step(step), {}));
  }
}

TEST_F(Checkpoints, WhatALiveProcessWritesStays) {
  Learner run(small_run(Precision::kF32));
  run.save_as(run_, 1);
  {
    io::StagedFolder staged(of_step(2));
    const fs::path stale = of_step(2).parent_path() / ".step-00000002.1-0.staged";
    fs::create_directory(stale);
    ASSERT_TRUE(run.restore(run_));
    EXPECT_TRUE(fs::exists(staged.path()));
    EXPECT_FALSE(fs::exists(stale));
  }
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
}

}  // namespace lockstep::train::checkpoint_test
