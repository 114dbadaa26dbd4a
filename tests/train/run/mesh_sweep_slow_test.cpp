// Every mesh of 2, 4, 6 and 8 ranks that are threads, with every family, pipelines of every
// schedule and ZeRO 0 to 3 in turn: the losses and gradient norms of 20 steps are those of one
// worker.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train::mesh_sweep_test {
namespace {

struct Mesh {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;
  int context = 1;
  int expert = 1;
  int ranks() const { return data * pipeline * tensor * context * expert; }
};

// All of `ranks` ranks, with expert groups or without.
std::vector<Mesh> meshes_of(int ranks, bool experts) {
  std::vector<Mesh> all;
  const auto each = [](int number, auto&& use) {
    for (int part = 1; part <= number; ++part) {
      if (number % part == 0) use(part);
    }
  };
  each(ranks, [&](int pipeline) {
    each(ranks / pipeline, [&](int tensor) {
      each(ranks / pipeline / tensor, [&](int context) {
        const int left = ranks / pipeline / tensor / context;
        each(experts ? left : 1, [&](int expert) {
          all.push_back({left / expert, pipeline, tensor, context, expert});
        });
      });
    });
  });
  return all;
}

class MeshSweep : public ThreadRuns, public ::testing::WithParamInterface<const char*> {
 protected:
  MeshSweep() {
    std::ofstream pairs(folder / "pairs.tsv");
    for (int i = 0; i < 200; ++i) pairs << "the fox " << i << "\tle renard " << i << "\n";
  }

  // Eight blocks and more, heads for tensor and context groups of 8 ranks together, and steps so
  // short that rounding does not grow.
  Settings model() const {
    const std::string family = GetParam();
    Settings settings = {"model.layers=6",           "model.hidden=96",
                         "model.heads=24",           "model.feed_forward=96",
                         "train.seq_len=48",         "train.global_batch_size=24",
                         "train.micro_batch_size=1", "optimizer.learning_rate=0.0003"};
    if (family == "encoder-decoder") {
      for (const std::string& setting :
           {std::string("data.text="), "data.pairs=" + (folder / "pairs.tsv").string(),
            std::string("data.tokenizer=bpe"), std::string("data.bpe_vocabulary=280")}) {
        settings.push_back(setting);
      }
    } else if (family == "mixtral") {
      settings.insert(settings.end(), {"model.experts=24", "model.router_loss=0.1"});
    } else if (family == "gemma2") {
      settings.insert(settings.end(), kCappedGemma2.begin(), kCappedGemma2.end());
    }
    settings.push_back("model.family=" + family);
    return settings;
  }

  void run(const std::string& dir, int ranks, const Settings& more) const {
    Settings settings = model();
    settings.insert(settings.end(), more.begin(), more.end());
    run_ranks(ranks, small_run(dir, 20, settings));
  }
};

TEST_P(MeshSweep, EveryMeshFollowsOneWorker) {
  run("one", 1, {});
  const Curve alone = curve("one");
  ASSERT_EQ(alone.losses.size(), 20u);
  const std::string schedules[] = {"1f1b", "gpipe", "interleaved", "zb_h1"};
  int number = 0;
  for (const int ranks : {2, 4, 6, 8}) {
    for (const Mesh& mesh : meshes_of(ranks, std::string(GetParam()) == "mixtral")) {
      ++number;
      std::string schedule = schedules[number / 4 % 4];
      // Six layers are eight blocks: no two chunks for each of more than four stages.
      if (schedule == "interleaved" && mesh.pipeline > 4) schedule = "1f1b";
      // These shard no gradients.
      const bool zero_bubble = schedule == "zb_h1" && mesh.pipeline > 1;
      const int zero = number % (zero_bubble ? 2 : 4);
      const bool sequence = mesh.tensor > 1 && number % 3 == 0;
      const Settings settings = {fmt::format("parallel.pipeline={}", mesh.pipeline),
                                 fmt::format("parallel.tensor={}", mesh.tensor),
                                 fmt::format("parallel.context={}", mesh.context),
                                 fmt::format("parallel.expert={}", mesh.expert),
                                 fmt::format("parallel.zero={}", zero),
                                 fmt::format("parallel.sequence={}", sequence),
                                 "parallel.pipeline_schedule=" + schedule};
      SCOPED_TRACE(fmt::format("data {}, {}", mesh.data, fmt::join(settings, " ")));
      const std::string dir = fmt::format("mesh{}", number);
      ASSERT_NO_THROW(run(dir, ranks, settings));
      expect_near(curve(dir), alone, 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MeshSweep,
                         testing::Values("gpt2", "llama", "bert", "encoder-decoder", "mixtral",
                                         "gemma2", "gpt-neox"),
                         [](const auto& family) {
                           std::string name = family.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::train::mesh_sweep_test
