// Checkpoints that are written beside steps hold the states of the moment at which they were due.
#include "lockstep/train/checkpoint/save_under_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <semaphore>
#include <thread>

#include "lockstep/base/file/scratch_folder.h"
#include "tests/train/run/file_limit.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::save_under_way_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

WholeStates stored_states(const fs::path& checkpoint) {
  WholeStates states;
  const auto file = open_states(open_checkpoint(checkpoint, {}));
  for (const std::string_view name : file->names()) {
    std::vector<float>& values = states[std::string(name)];
    values.resize(file->at(name).shape.elements());
    file->read(name, tensor_of(std::span(values), file->at(name).shape));
  }
  return states;
}

// Reads no block before it may, and says when an update has come to one.
class WatchedReading : public nn::StateReader {
 public:
  explicit WatchedReading(parallel::Trace& trace) : reading(trace) {}
  void before_change(std::size_t block) override {
    came_to[block].release();
    reading.before_change(block);
  }
  StateReading reading;
  std::array<std::counting_semaphore<>, 8> came_to{
      std::counting_semaphore<>(0), std::counting_semaphore<>(0), std::counting_semaphore<>(0),
      std::counting_semaphore<>(0), std::counting_semaphore<>(0), std::counting_semaphore<>(0),
      std::counting_semaphore<>(0), std::counting_semaphore<>(0)};
};

// The update has caught up with the file and stands right behind it, block by block.
TEST(StateReading, HasUpdatesFollowTheFileBlockByBlock) {
  for (const auto precision : {plan::Precision::kF32, plan::Precision::kBf16}) {
    const ScratchFolder folder;
    const auto ops = make_cpu_ops(1);
    Trainer trainer(tiny_options(precision), *ops);
    Sequences sequences(4, 7);
    const auto batches = sequences.batches(4);
    trainer.step(batches);
    WholeStates before;
    take_states(trainer.replica(), before);
    const CheckpointFolder run(folder.path());
    const CheckpointExtras extras{.state = trainer.state(), .config = "", .tokenizer = ""};
    const std::size_t blocks = trainer.replica().model().size();
    ASSERT_LE(blocks, 8u);
    WatchedReading watched(trainer.strategy().trace());
    trainer.replica().set_reader(&watched);
    std::thread writer([&] {
      UnfinishedCheckpoint checkpoint(run, 1);
      watched.came_to[0].acquire();
      const io::FileHash hash = checkpoint.write(trainer.replica(), [&](std::size_t block) {
        watched.reading.has_read(block);
        if (block + 1 < blocks) watched.came_to[block + 1].acquire();
      });
      checkpoint.commit(extras, std::span(&hash, 1));
    });
    trainer.step(batches);
    writer.join();
    EXPECT_GT(watched.reading.take_waited(), 0);
    EXPECT_EQ(watched.reading.take_waited(), 0);
    WholeStates after;
    take_states(trainer.replica(), after);
    EXPECT_NE(after, before);
    EXPECT_EQ(stored_states(run.path(1)), before);
  }
}

TEST(StateReading, LetsEverybodyGoOnWhenItEndsEarlyOrIsGivenUp) {
  parallel::Trace trace;
  StateReading reading(trace);
  reading.has_read(1);
  reading.before_change(0);
  reading.before_change(1);
  EXPECT_EQ(reading.take_waited(), 0);
  std::thread reader([&] { reading.end(); });
  reading.before_change(7);
  reader.join();
  reading.give_up();
  EXPECT_THROW(reading.has_read(2), Error);
}

struct Way {
  int workers = 1;
  int stage = 0;
  plan::Precision precision = plan::Precision::kF32;
};

class SaveUnderWayTest : public ::testing::Test {
 protected:
  // Does `work` at every worker of a run, after its first step.
  template <class Work>
  void at_all(const Way& way, Work work) const {
    TrainOptions options = tiny_options(way.precision);
    options.batch = {.sequence = 7, .sequences = 4, .micro = 1, .workers = way.workers};
    options.parallel.zero = way.stage;
    options.threads = 1;
    run_workers(options, [&](Trainer& trainer, Communicator* others) {
      trainer.start();
      step(trainer);
      work(trainer, RunGroup(others));
      RunGroup(others).barrier();
    });
  }

  static void step(Trainer& trainer) {
    run_steps(trainer, 1, [](const StepMetrics&) {});
  }

  SaveUnderWay::Job job(Trainer& trainer, RunGroup group) const {
    return {.replica = trainer.replica(),
            .strategy = trainer.strategy(),
            .folder = folder_,
            .group = group,
            .extras = {.state = trainer.state(), .config = "[model]\n", .tokenizer = ""}};
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(scratch_.path() / "checkpoints")) {
      found.push_back(entry.path().filename().string());
    }
    std::ranges::sort(found);
    return found;
  }

  ScratchFolder scratch_;
  CheckpointFolder folder_{scratch_.path()};
};

TEST_F(SaveUnderWayTest, HoldsWhatWasWhenItWasDueHoweverManyStepsFollow) {
  for (const Way& way : {Way{1, 0}, Way{2, 0, plan::Precision::kBf16}, Way{2, 1}, Way{3, 2},
                         Way{4, 3}, Way{2, 3, plan::Precision::kBf16}}) {
    SCOPED_TRACE(fmt::format("{} workers at stage {}", way.workers, way.stage));
    WholeStates due;
    std::mutex mutex;
    std::vector<int> looks(static_cast<std::size_t>(way.workers));
    at_all(way, [&](Trainer& trainer, RunGroup group) {
      {
        const std::lock_guard lock(mutex);
        take_states(trainer.replica(), due);
      }
      group.barrier();
      SaveUnderWay save(job(trainer, group));
      std::optional<SaveOutcome> outcome;
      int& looked = looks[static_cast<std::size_t>(group.rank())];
      for (; !outcome && looked < 20; ++looked) {
        step(trainer);
        outcome = save.look();
      }
      if (!outcome) outcome = save.wait();
      EXPECT_EQ(outcome->failure, std::nullopt);
      // As many steps at all of them, whether they had a part in it or not.
      for (int i = looked; i < 20; ++i) step(trainer);
    });
    EXPECT_EQ(stored_states(folder_.path(1)), due);
    if (way.stage > 0) {
      EXPECT_THAT(looks, Each(looks.front()));
    }
    EXPECT_THAT(names(), ElementsAre("step-00000001"));
    fs::remove_all(scratch_.path() / "checkpoints");
  }
}

TEST_F(SaveUnderWayTest, WithoutRoomTellsAllAndLeavesNothing) {
  for (const Way& way : {Way{1, 0}, Way{3, 3}}) {
    std::mutex mutex;
    std::vector<std::string> said;
    std::optional<FileLimit> limit;
    at_all(way, [&](Trainer& trainer, RunGroup group) {
      if (group.leads()) limit.emplace(5000);
      group.barrier();
      SaveUnderWay save(job(trainer, group));
      step(trainer);
      const SaveOutcome outcome = save.wait();
      const std::lock_guard lock(mutex);
      said.push_back(outcome.failure.value_or("saved"));
    });
    limit.reset();
    EXPECT_THAT(said, Each(AllOf(HasSubstr("cannot write"), HasSubstr("File too large"))));
    EXPECT_THAT(names(), IsEmpty());
  }
}

// As when a step fails: the leader's own is there, that of workers with parts cannot be.
TEST_F(SaveUnderWayTest, ThatIsLeftAloneIsThereWholeOrNotAtAll) {
  at_all({1, 0}, [&](Trainer& trainer, RunGroup group) { SaveUnderWay save(job(trainer, group)); });
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
  EXPECT_NO_THROW(open_checkpoint(folder_.path(1), {}));
  fs::remove_all(scratch_.path() / "checkpoints");
  at_all({2, 3}, [&](Trainer& trainer, RunGroup group) { SaveUnderWay save(job(trainer, group)); });
  io::remove_stale(scratch_.path() / "checkpoints");
  EXPECT_THAT(names(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::train::save_under_way_test
