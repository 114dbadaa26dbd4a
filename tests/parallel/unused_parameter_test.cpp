// Parameters that a step, or a worker's part of it, makes no use of.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/parallel/server/fixture.h"

namespace lockstep::parallel::server_test {
namespace {

constexpr std::int64_t kSpare = 48;
constexpr std::size_t kBlock = 1;

using Uses = std::function<bool(const nn::Batch& batch)>;

// A layer with an extra parameter; only batches that use it contribute to its gradient.
class LayerWithSpare : public nn::ChangedBlock {
 public:
  LayerWithSpare(std::shared_ptr<nn::Model> of, const Uses& uses)
      : ChangedBlock(std::move(of), kBlock, [uses](nn::Block& layer, const nn::Pass& pass) {
          layer.backward(pass);
          if (!uses(pass.batch)) return;
          pass.ops.synchronize();
          for (float& element : pass.gradients.back().as<float>()) element += 0.25f;
        }) {}

  nn::BlockSpec spec(const nn::Setup& setup, const Ops& ops) const override {
    nn::BlockSpec spec = block().spec(setup, ops);
    spec.parameters.push_back({.name = "spare",
                               .shape = {kSpare},
                               .initial = {.mean = 1, .stddev = 0},
                               .decays = false,
                               .tied_to = {}});
    return spec;
  }
};

nn::Model with_spare(nn::Model model, const Uses& uses) {
  const auto all = std::make_shared<nn::Model>(std::move(model));
  std::vector<std::unique_ptr<nn::Block>> blocks;
  for (std::size_t i = 0; i < all->size(); ++i) {
    if (i == kBlock) {
      blocks.push_back(std::make_unique<LayerWithSpare>(all, uses));
    } else {
      blocks.push_back(std::make_unique<nn::ChangedBlock>(
          all, i, [](nn::Block& block, const nn::Pass& pass) { block.backward(pass); }));
    }
  }
  return {all->name(), std::move(blocks)};
}

Training training_with(const Uses& uses, int workers) {
  Training training;
  training.workers = workers;
  training.micro_batches = workers;
  training.reduction = Reduction::kTree;
  training.change = [uses](nn::Model model) { return with_spare(std::move(model), uses); };
  return training;
}

std::vector<Result> train(const Training& training, bool overlap) {
  ParallelOptions options;
  options.bucket_mb = 0.002;
  options.overlap = overlap;
  return train_with_ddp(training, options);
}

// The values of the spare one in a flat buffer of f32.
std::vector<float> spare_of(const Training& training, const std::vector<std::byte>& buffer) {
  const auto ops = make_cpu_ops(1);
  const nn::Replica replica = make_trainee(training, *ops);
  const nn::FlatParameter& place = replica.flat().find("layer.0.spare");
  const auto* first = reinterpret_cast<const float*>(buffer.data()) + place.offset;
  return {first, first + kSpare};
}

TEST(UnusedParameters, StayWhatTheyWere) {
  for (const int workers : {1, 2, 4}) {
    const Training training = training_with([](const nn::Batch&) { return false; }, workers);
    for (const bool overlap : {true, false}) {
      for (const Result& worker : train(training, overlap)) {
        EXPECT_EQ(spare_of(training, worker.parameters), std::vector<float>(kSpare, 1.0f));
      }
    }
  }
}

// Used by the batches of some workers only: all workers get the same sum, that of a single worker.
TEST(UnusedParameters, OfSomeWorkersGetTheOthersGradients) {
  const Uses some = [](const nn::Batch& batch) {
    return batch.tokens.as<const std::int32_t>()[0] % 2 == 0;
  };
  for (const int workers : {1, 2, 4}) {
    const Training training = training_with(some, workers);
    int users = 0;  // of all micro-batches
    for (int step = 1; step <= training.steps; ++step) {
      for (int i = 0; i < workers; ++i) {
        nn::TinyBatch batch = batch_of(training, step, i);
        if (some(batch.batch())) ++users;
      }
    }
    EXPECT_GT(users, 0);
    EXPECT_LT(users, training.steps * workers);
    const Result alone = train_alone(training);
    EXPECT_NE(spare_of(training, alone.parameters), std::vector<float>(kSpare, 1.0f));
    for (const bool overlap : {true, false}) {
      for (const Result& worker : train(training, overlap)) {
        EXPECT_TRUE(worker.parameters == alone.parameters) << workers;
        EXPECT_EQ(worker.losses, alone.losses);
      }
    }
    Training served = training;
    served.servers.servers = std::min(workers, 2);
    served.servers.slice_mb = 0.0005;
    for (const Result& worker : train_with_servers(served)) {
      EXPECT_TRUE(worker.parameters == alone.parameters) << workers;
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel::server_test
