// Meshes of ranks that share a GPU: whole runs of tensor groups, context groups, expert groups and
// pipelines have the losses of one rank, and ranks take the memory that is planned.
//
// Ranks of processes are what users have. Ranks that are threads share one CUDA context, in which
// the first use of a kernel may wait for a collective that waits for this rank. So lockstep's
// kernels are loaded before, and a run of one rank, whose products have the same shapes, loads
// cuBLASLt's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/launch/make_world.h"
#include "lockstep/parallel/make_strategy.h"
#include "lockstep/plan/mesh/mesh.h"
#include "lockstep/train/run/mesh_groups.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/launch/launched.h"
#include "tests/paths.h"
#include "tests/tensor/cuda/gpu.h"
#include "tests/train/run/thread_runs.h"
#include "tests/train/trainer/random_sequences.h"

namespace lockstep::train::cuda_meshes_test {
namespace {

using lockstep::testing::kGpu;

struct Mesh {
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  int zero = 0;
  bool sequence = false;
  int context = 1;
  const char* schedule = "1f1b";
  int expert = 1;

  int ranks() const { return tensor * pipeline * data * context * expert; }
  Settings settings() const {
    return {"run.device=cuda",
            "device.share=true",
            "parallel.tensor=" + std::to_string(tensor),
            "parallel.pipeline=" + std::to_string(pipeline),
            "parallel.context=" + std::to_string(context),
            "parallel.expert=" + std::to_string(expert),
            std::string("parallel.pipeline_schedule=") + schedule,
            "parallel.zero=" + std::to_string(zero),
            "parallel.sequence=" + std::string(sequence ? "true" : "false")};
  }
  std::string text() const {
    return "tensor " + std::to_string(tensor) + (sequence ? " with sequence" : "") + ", pipeline " +
           std::to_string(pipeline) + " (" + schedule + "), context " + std::to_string(context) +
           ", expert " + std::to_string(expert) + ", data " + std::to_string(data) + ", ZeRO " +
           std::to_string(zero);
  }
};

const Settings kMixtral = {"model.family=mixtral", "model.experts=4", "model.feed_forward=24",
                           "model.router_loss=0.1"};
constexpr Mesh kOfExperts[] = {{.expert = 2},
                               {.zero = 1, .expert = 2},
                               {.zero = 3, .expert = 2},
                               {.data = 2, .expert = 2},
                               {.data = 2, .zero = 2, .expert = 2},
                               {.tensor = 2, .sequence = true, .expert = 2},
                               {.pipeline = 2, .expert = 2},
                               {.context = 2, .expert = 2},
                               {.expert = 4}};
constexpr Mesh kOfTwo[] = {{.tensor = 2}, {.tensor = 2, .sequence = true}};
constexpr Mesh kOfFour[] = {{.tensor = 2, .pipeline = 2},
                            {.tensor = 2, .data = 2},
                            {.tensor = 2, .data = 2, .zero = 3},
                            {.tensor = 2, .data = 2, .zero = 1, .sequence = true},
                            {.tensor = 2, .pipeline = 2, .sequence = true},
                            {.tensor = 4}};

class CudaMeshes : public lockstep::testing::OnGpu<ThreadRuns> {
 protected:
  CudaMeshes() {
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);  // before CUDA is first asked
    ::setenv("LOCKSTEP_TUNE", "0", 0);
    std::ofstream pairs(folder / "pairs.tsv");
    for (int i = 0; i < 200; ++i) pairs << "the fox " << i << "\tle renard " << i << "\n";
  }

  Settings model(const std::string& family) const {
    if (family != "encoder-decoder") return {"model.family=" + family};
    return {"model.family=encoder-decoder",
            "data.text=", "data.pairs=" + (folder / "pairs.tsv").string(), "data.tokenizer=bpe",
            "data.bpe_vocabulary=280"};
  }

  Settings settings_of(const std::string& dir, const Mesh& mesh, int steps,
                       const Settings& more) const {
    Settings settings = mesh.settings();
    settings.insert(settings.end(), more.begin(), more.end());
    return small_run(dir, steps, settings);
  }

  void run_threads_of(const std::string& dir, const Mesh& mesh, int steps,
                      const Settings& more) const {
    run_ranks(mesh.ranks(), settings_of(dir, mesh, steps, more));
  }

  void run_processes(const std::string& dir, const Mesh& mesh, int steps,
                     const Settings& more) const {
    std::vector<std::string> arguments = {"-n", std::to_string(mesh.ranks()), "--",
                                          in_build("lockstep"), "train"};
    for (const std::string& one : settings_of(dir, mesh, steps, more)) arguments.push_back(one);
    arguments.push_back("comm.measure=false");
    testing::Launched job(arguments, {"LOCKSTEP_TUNE=0"});  // the same algorithms in all runs
    EXPECT_EQ(job.wait(std::chrono::seconds(240)), 0) << dir << ": " << job.err();
  }
};

constexpr int kSteps = 12;

TEST_F(CudaMeshes, ProcessesHaveTheLossesAndNormsOfOneRank) {
  run_processes("one", {}, kSteps, {});
  const Curve alone = curve("one");
  ASSERT_EQ(alone.losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  int number = 0;
  const auto follows = [&](const Mesh& mesh) {
    SCOPED_TRACE(mesh.text());
    const std::string dir = "mesh" + std::to_string(number++);
    run_processes(dir, mesh, kSteps, {});
    expect_near(curve(dir), alone, 1e-5);
  };
  for (const Mesh& mesh : kOfTwo) follows(mesh);
  for (const Mesh& mesh : kOfFour) follows(mesh);
}

TEST_F(CudaMeshes, EveryFamilyFollowsOneRank) {
  int number = 0;
  for (const std::string family : {"gpt2", "llama", "bert", "encoder-decoder"}) {
    const std::string one = "one-" + family;
    run_threads_of(one, {}, kSteps, model(family));
    const Curve alone = curve(one);
    ASSERT_EQ(alone.losses.size(), static_cast<std::size_t>(kSteps));
    const auto follows = [&](const Mesh& mesh) {
      SCOPED_TRACE(family + ": " + mesh.text());
      const std::string dir = "mesh" + std::to_string(number++);
      run_threads_of(dir, mesh, kSteps, model(family));
      expect_near(curve(dir), alone, 1e-5);
    };
    for (const Mesh& mesh : kOfTwo) follows(mesh);
    for (const Mesh& mesh : kOfFour) follows(mesh);
  }
}

TEST_F(CudaMeshes, EveryScheduleFollowsOneRank) {
  const Settings four = {"model.layers=4"};
  run_threads_of("one", {}, kSteps, four);
  const Curve alone = curve("one");
  ASSERT_EQ(alone.losses.size(), static_cast<std::size_t>(kSteps));
  for (const char* const schedule : {"1f1b", "gpipe", "interleaved", "zb_h1", "zb_h2"}) {
    const Mesh mesh{.pipeline = 2, .schedule = schedule};
    SCOPED_TRACE(mesh.text());
    run_threads_of(schedule, mesh, kSteps, four);
    expect_near(curve(schedule), alone, 1e-5);
  }
}

TEST_F(CudaMeshes, SlicesOfTokensFollowOneRank) {
  for (const std::string family : {"gpt2", "llama"}) {
    const Settings settings = {"model.family=" + family, "train.micro_batch_size=1"};
    run_threads_of("one-" + family, {}, kSteps, settings);
    Settings sliced = settings;
    sliced.push_back("parallel.pipeline_slices=3");
    const Mesh mesh{.pipeline = 2, .schedule = "terapipe"};
    run_threads_of("sliced-" + family, mesh, kSteps, sliced);
    ASSERT_FALSE(curve("one-" + family).losses.empty());
    expect_near(curve("sliced-" + family), curve("one-" + family), 1e-5);
  }
}

TEST_F(CudaMeshes, ContextGroupsFollowOneRank) {
  int number = 0;
  for (const std::string family : {"gpt2", "llama", "bert", "encoder-decoder"}) {
    const std::string one = "one-" + family;
    run_threads_of(one, {}, kSteps, model(family));
    const Curve alone = curve(one);
    ASSERT_EQ(alone.losses.size(), static_cast<std::size_t>(kSteps));
    for (const std::string attention : {"heads", "ring"}) {
      if (attention == "ring" && family == "encoder-decoder") continue;
      for (const Mesh& mesh : {Mesh{.context = 2}, Mesh{.data = 2, .zero = 3, .context = 2},
                               Mesh{.tensor = 2, .context = 2}}) {
        SCOPED_TRACE(family + " by " + attention + ": " + mesh.text());
        Settings settings = model(family);
        settings.push_back("parallel.context_attention=" + attention);
        const std::string dir = "mesh" + std::to_string(number++);
        run_threads_of(dir, mesh, kSteps, settings);
        expect_near(curve(dir), alone, 1e-5);
      }
    }
  }
}

TEST_F(CudaMeshes, ContextGroupsOfProcessesFollowOneRank) {
  const Settings settings = {"train.precision=bf16", "model.family=llama"};
  run_processes("one", {}, kSteps, settings);
  int number = 0;
  for (const Mesh& mesh : {Mesh{.context = 2}, Mesh{.pipeline = 2, .context = 2}}) {
    SCOPED_TRACE(mesh.text());
    const std::string dir = "mesh" + std::to_string(number++);
    run_processes(dir, mesh, kSteps, settings);
    expect_near(curve(dir).losses, curve("one").losses, 0.02);
  }
}

TEST_F(CudaMeshes, ExpertGroupsFollowOneRank) {
  for (const std::string capacity : {"0", "0.8"}) {
    Settings settings = kMixtral;
    settings.push_back("train.expert_capacity=" + capacity);
    const std::string one = "one" + capacity;
    run_processes(one, {}, kSteps, settings);
    const Curve alone = curve(one);
    ASSERT_EQ(alone.losses.size(), static_cast<std::size_t>(kSteps));
    int number = 0;
    for (const Mesh& mesh : kOfExperts) {
      if (mesh.context > 1 && capacity != "0") continue;  // drops other rows; see below
      SCOPED_TRACE(mesh.text());
      const std::string dir = "mesh" + capacity + "-" + std::to_string(number++);
      run_processes(dir, mesh, kSteps, settings);
      expect_near(curve(dir), alone, 1e-5);
    }
  }
}

// A rank of a context group drops rows by the tokens that it has itself, on every device.
TEST_F(CudaMeshes, ContextGroupsThatDropRowsFollowTheCpu) {
  Settings settings = kMixtral;
  settings.push_back("train.expert_capacity=0.8");
  const Mesh mesh{.context = 2, .expert = 2};
  run_processes("gpu", mesh, 4, settings);
  settings.push_back("run.device=cpu");
  run_processes("cpu", mesh, 4, settings);
  ASSERT_EQ(curve("gpu").losses.size(), 4u);
  expect_near(curve("gpu").losses, curve("cpu").losses, 1e-3);
}

TEST_F(CudaMeshes, ExpertGroupsInHalfPrecisionFollowOneRank) {
  Settings settings = kMixtral;
  settings.push_back("train.precision=bf16");
  run_processes("one", {}, kSteps, settings);
  int number = 0;
  for (const Mesh& mesh : {kOfExperts[0], kOfExperts[4]}) {
    SCOPED_TRACE(mesh.text());
    const std::string dir = "mesh" + std::to_string(number++);
    run_processes(dir, mesh, kSteps, settings);
    expect_near(curve(dir).losses, curve("one").losses, 0.02);
  }
}

TEST_F(CudaMeshes, OffloadFollowsTheMeshWithoutIt) {
  const Settings optimizer = {"offload.optimizer=host"};
  const Settings file = {"offload.optimizer=file"};
  const Settings all = {"offload.optimizer=host", "offload.gradients=host",
                        "offload.parameters=host", "offload.activations=host"};
  int number = 0;
  for (const Mesh& mesh :
       {Mesh{.tensor = 2}, Mesh{.tensor = 2, .data = 2, .zero = 2}, Mesh{.context = 2},
        Mesh{.pipeline = 2}, Mesh{.data = 2, .zero = 1, .expert = 2}}) {
    const Settings model = mesh.expert > 1 ? kMixtral : Settings{"model.family=llama"};
    const std::string without = "without" + std::to_string(number);
    run_processes(without, mesh, kSteps, model);
    ASSERT_FALSE(curve(without).losses.empty());
    for (const Settings& tiers : {optimizer, file, all}) {
      if (mesh.pipeline > 1 && tiers.size() > 1) continue;  // refused
      SCOPED_TRACE(mesh.text() + ": " + tiers.back());
      Settings settings = model;
      settings.insert(settings.end(), tiers.begin(), tiers.end());
      const std::string dir = "mesh" + std::to_string(number++);
      run_processes(dir, mesh, kSteps, settings);
      expect_near(curve(dir), curve(without), 1e-5);
    }
  }
}

TEST_F(CudaMeshes, HalfPrecisionFollowsOneRank) {
  const Settings settings = {"train.precision=bf16", "model.family=llama"};
  run_processes("one", {}, kSteps, settings);
  int number = 0;
  for (const Mesh& mesh : {kOfTwo[0], kOfTwo[1], kOfFour[0], kOfFour[2]}) {
    SCOPED_TRACE(mesh.text());
    const std::string dir = "mesh" + std::to_string(number++);
    run_processes(dir, mesh, kSteps, settings);
    expect_near(curve(dir).losses, curve("one").losses, 0.02);
  }
}

TEST_F(CudaMeshes, TheSameSettingsGiveTheSameBits) {
  const Settings dropout = {"model.dropout=0.1"};
  run_processes("first", kOfFour[2], kSteps, dropout);
  run_processes("second", kOfFour[2], kSteps, dropout);
  ASSERT_FALSE(curve("first").losses.empty());
  EXPECT_EQ(curve("first"), curve("second"));
}

// A checkpoint holds logical tensors, so one run goes on with other groups and on the CPU.
TEST_F(CudaMeshes, CheckpointsMoveBetweenMeshesAndDevices) {
  run_processes("whole", {}, kSteps, {});
  run_processes("moves", kOfTwo[1], 4, {});
  run_processes("moves", {.tensor = 2, .data = 2, .zero = 2}, 8, {"run.device=cpu"});
  run_processes("moves", kOfFour[0], kSteps, {});
  expect_near(curve("moves").losses, curve("whole").losses, 2e-5);
}

// ---- memory

constexpr Mesh kPlanned[] = {kOfTwo[0],  kOfTwo[1],     kOfFour[0],   kOfFour[1],
                             kOfFour[2], kOfExperts[0], kOfExperts[4]};
constexpr plan::Precision kPrecisions[] = {plan::Precision::kF32, plan::Precision::kBf16};
constexpr const char* kMeshVariable =
    "LOCKSTEP_TEST_MESH";  // an index: this process is a rank of it

TrainOptions tiny(const Mesh& mesh, plan::Precision precision, int rank) {
  TrainOptions options = tiny_options(precision);
  options.batch = {.sequence = 8, .sequences = 8, .micro = 2};
  options.batch.workers = mesh.data * mesh.expert;
  if (mesh.expert > 1) {
    options.model.family = ModelFamily::kMixtral;
    options.model.experts = 4;
  }
  options.node_place = {.rank = rank, .ranks = mesh.ranks()};
  options.device = "cuda";
  options.share_device = true;
  parallel::ParallelOptions& parallel = options.parallel;
  parallel.device = kGpu;
  parallel.device_ranks = mesh.ranks();
  parallel.tensor = mesh.tensor;
  parallel.pipeline = mesh.pipeline;
  parallel.expert = mesh.expert;
  parallel.zero = mesh.zero;
  parallel.sequence = mesh.sequence;
  const plan::Coordinates at = plan::Mesh({.data = mesh.data,
                                           .pipeline = mesh.pipeline,
                                           .tensor = mesh.tensor,
                                           .expert = mesh.expert})
                                   .coordinates_of(rank);
  parallel.tensor_rank = at.tensor;
  parallel.stage = at.pipeline;
  parallel.expert_rank = at.expert;
  return options;
}

void train_as_planned(Communicator& world, const TrainOptions& options) {
  const std::size_t before = memory_in_use(kGpu);
  const auto ops = lockstep::make_ops(kGpu, 1);
  MeshGroups groups(options.parallel, &world);
  const auto strategy =
      parallel::make_strategy({.options = options.parallel,
                               .optimizer = options.optimizer,
                               .most_micro_batches = solved(options.batch).accumulation},
                              groups.workers());
  Trainer trainer(options, *ops, *strategy);
  trainer.set_axes(groups.tensor(), groups.pipeline(), groups.context(), groups.expert());
  trainer.start();
  const BatchChoice batch = solved(options.batch);
  Sequences sequences(batch.sequences, batch.sequence);
  const auto batches = sequences.batches(batch.micro);
  for (int step = 0; step < 3; ++step) {
    const auto share = strategy->next(step_plan(batch), step, step + 1).value();
    const auto mine = std::span(batches).subspan(static_cast<std::size_t>(share.first_micro_batch),
                                                 static_cast<std::size_t>(share.micro_batches));
    EXPECT_GT(trainer.step(mine, share)->loss, 0);
  }
  EXPECT_EQ(memory_in_use(kGpu) - before, trainer.replica().plan().bytes(Tier::kDevice));
  world.barrier();
}

class CudaMeshRank : public lockstep::testing::OnGpu<::testing::Test> {};

// A rank of the test below.
TEST_F(CudaMeshRank, AllocatesWhatIsPlanned) {
  const char* const which = std::getenv(kMeshVariable);
  if (which == nullptr) GTEST_SKIP() << "SKIPPED: CudaMeshes.AllocateWhatIsPlanned starts it";
  const auto index = static_cast<std::size_t>(std::atoi(which));
  const Mesh& mesh = kPlanned[index / std::size(kPrecisions)];
  const auto world = make_world();
  train_as_planned(*world, tiny(mesh, kPrecisions[index % std::size(kPrecisions)], world->rank()));
}

TEST_F(CudaMeshes, AllocateWhatIsPlanned) {
  for (std::size_t i = 0; i < std::size(kPlanned) * std::size(kPrecisions); ++i) {
    const Mesh& mesh = kPlanned[i / std::size(kPrecisions)];
    SCOPED_TRACE(mesh.text());
    testing::Launched job(
        {"-n", std::to_string(mesh.ranks()), "--", in_build("tests/train_cuda_test"),
         "--gtest_filter=CudaMeshRank.AllocatesWhatIsPlanned"},
        {std::string(kMeshVariable) + "=" + std::to_string(i), "LOCKSTEP_COMM_MEASURE=false"});
    EXPECT_EQ(job.wait(std::chrono::seconds(120)), 0) << job.out() << job.err();
    EXPECT_THAT(job.out(), ::testing::HasSubstr("PASSED")) << "nothing was checked";
  }
}

}  // namespace
}  // namespace lockstep::train::cuda_meshes_test
