// Whole runs of ranks that are threads, on a small text, and the curves that they write.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/observe/metrics_file.h"
#include "lockstep/train/observe/metrics_line.h"
#include "lockstep/train/run/run.h"

namespace lockstep::train {

using Settings = std::vector<std::string>;

// Gemma 2 with caps among the scores and logits of small runs. A higher learning rate would turn
// rounding errors of gradients near 0 into steps of Adam, which the losses then show.
inline const Settings kCappedGemma2 = {"model.family=gemma2", "model.attention_softcap=1.5",
                                       "model.logit_softcap=6", "model.query_pre_attn_scalar=5",
                                       "optimizer.learning_rate=0.001"};
// Narrower than their sequences.
inline Settings with_window(Settings model) {
  model.emplace_back("model.window=3");
  return model;
}

// Of every step, as metrics.jsonl has it.
struct Curve {
  std::vector<double> losses, norms, validations;
  friend bool operator==(const Curve&, const Curve&) = default;
};

inline void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                        double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << "step " << i + 1;
  }
}
inline void expect_near(const Curve& got, const Curve& want, double tolerance) {
  expect_near(got.losses, want.losses, tolerance);
  expect_near(got.norms, want.norms, 10 * tolerance);
  expect_near(got.validations, want.validations, tolerance);
}

class ThreadRuns : public ::testing::Test {
 protected:
  using Observers = std::vector<std::unique_ptr<RunObserver>>;

  ThreadRuns() {
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 200; ++i) text << "the quick brown fox jumps over " << i << " lazy dogs\n";
  }

  // Of a model of two layers, with several micro-batches a step, and `more`.
  Settings small_run(const std::string& dir, int steps, const Settings& more) const {
    Settings settings = {"data.text=" + (folder / "text.txt").string(), "data.tokenizer=character",
                         "run.dir=" + (folder / dir).string(), "model.layers=2", "model.hidden=32",
                         "model.heads=4", "train.seq_len=8", "train.global_batch_size=8",
                         "train.micro_batch_size=2", "train.precision=f32", "train.threads=1",
                         "train.validate_every=10", "train.validate_batches=2",
                         "checkpoint.every=0", "optimizer.learning_rate=0.01",
                         // Below the norms of the first steps.
                         "optimizer.max_grad_norm=0.5", "train.steps=" + std::to_string(steps)};
    settings.insert(settings.end(), more.begin(), more.end());
    return settings;
  }

  // Rank 0 has a metrics file, and the observers that add_observers() adds. prepare() sees the
  // options before the settings are read.
  static void run_ranks(
      int ranks, const Settings& settings,
      const std::function<void(Observers&)>& add_observers = [](Observers&) {},
      const std::function<void(RunSettings&)>& prepare = [](RunSettings&) {}) {
    const StopSignal stop;
    CommOptions comm;
    comm.measure = false;
    run_threads(
        ranks,
        [&](Communicator& world) {
          RunSettings given;
          prepare(given);
          for (const std::string& one : settings) given.config.set(one);
          Observers observers;
          if (world.rank() == 0) {
            add_observers(observers);
            observers.push_back(make_metrics_file());
          }
          run_training(given, observers, stop, {.world = &world, .host = {}});
          world.barrier();  // ranks that share a GPU free its memory when all are done
        },
        comm);
  }

  Curve curve(const std::string& dir) const {
    Curve all;
    read_metrics(folder / dir, [&](const StepRecord& record) {
      all.losses.push_back(record.metrics.loss);
      all.norms.push_back(record.metrics.gradient_norm);
      if (record.validation_loss) all.validations.push_back(*record.validation_loss);
    });
    return all;
  }

  // Losses, norms and every state of the last checkpoint.
  void expect_same_bits(const std::string& got, const std::string& want) const {
    ASSERT_FALSE(curve(want).losses.empty());
    EXPECT_EQ(curve(got).losses, curve(want).losses);
    EXPECT_EQ(curve(got).norms, curve(want).norms);
    EXPECT_EQ(curve(got).validations, curve(want).validations);
    const auto one = open_states(open_checkpoint(folder / got, {}));
    const auto other = open_states(open_checkpoint(folder / want, {}));
    ASSERT_EQ(one->names().size(), other->names().size());
    for (const std::string_view name : other->names()) {
      ASSERT_NE(one->find(name), nullptr) << name;
      const Shape shape = other->find(name)->shape;
      ASSERT_EQ(one->find(name)->shape, shape) << name;
      std::vector<float> a(shape.elements()), b(shape.elements());
      one->read(name, tensor_of(std::span(a), shape));
      other->read(name, tensor_of(std::span(b), shape));
      EXPECT_EQ(a, b) << name;
    }
  }

  ScratchFolder scratch;
  const std::filesystem::path& folder = scratch.path();
};

}  // namespace lockstep::train
