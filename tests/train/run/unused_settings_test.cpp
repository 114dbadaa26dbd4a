// A setting is called unused exactly where the run with it is the run without it.
#include "lockstep/train/run/unused_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/traffic.h"
#include "lockstep/train/memory/run_plan.h"

namespace lockstep::train::idle_settings_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class UnusedSettings : public ::testing::Test {
 protected:
  // Sets all of these, on so many workers.
  void set(int workers, const std::vector<std::string>& settings) {
    options_ = TrainOptions();
    config_ = std::make_unique<Config>();
    bind(*config_, options_);
    for (const char* setting :
         {"model.layers=4", "model.hidden=32", "model.heads=2", "model.vocabulary=53",
          "train.seq_len=16", "train.global_batch_size=24", "train.micro_batch_size=1"}) {
      config_->set(setting);
    }
    for (const std::string& setting : settings) config_->set(setting);
    options_.batch.workers = workers;
  }
  std::vector<std::string> unused() const { return unused_settings(options_, *config_, *ops_); }

  // What a run takes and sends, by which two can be told apart.
  std::string outline(const TrainOptions& options) const {
    std::string text;
    for (int worker = 0; worker < options.batch.workers; ++worker) {
      const nn::MemoryPlan plan = plan_run(options, *ops_, worker);
      for (const auto* requests : {&plan.requests, &plan.symmetric_requests, &plan.host_requests}) {
        for (const Request& each : *requests) {
          text += each.name + std::to_string(each.bytes) + "@" + std::to_string(each.first_step) +
                  "-" + std::to_string(each.last_step) + " ";
        }
      }
      const auto sent =
          parallel::traffic_of(options.parallel, worker_position_of(options, worker), plan);
      if (sent) text += std::to_string(sent->total().all);
    }
    return text;
  }

  TrainOptions options_;
  std::unique_ptr<Config> config_;
  const std::unique_ptr<Ops> ops_ = make_reference_ops();
};

TEST_F(UnusedSettings, AreThoseOfReductionsWithParameterServers) {
  const std::string servers = "parallel.strategy=parameter_server";
  set(2, {servers});
  EXPECT_THAT(unused(), IsEmpty());
  set(2, {servers, "parallel.overlap=false", "parallel.algorithm=ring"});
  EXPECT_THAT(unused(), ElementsAre(HasSubstr("parallel.overlap = false has no effect"),
                                    HasSubstr("parallel.algorithm = \"ring\" has no effect")));
  set(2, {"parallel.overlap=false", "parallel.algorithm=ring"});
  EXPECT_THAT(unused(), IsEmpty());
}

TEST_F(UnusedSettings, AreThoseWithoutWhichTheRunIsTheSame) {
  for (const int workers : {2, 3, 4}) {
    for (int zero = 0; zero <= 3; ++zero) {
      const std::string stage = "parallel.zero=" + std::to_string(zero);
      const auto expect_unused = [&](const std::string& setting, bool is) {
        EXPECT_EQ(unused().size(), is ? 1u : 0u) << stage << " " << setting << " of " << workers;
      };
      set(workers, {stage, "parallel.partition=layer"});
      TrainOptions plain = options_;
      plain.parallel.partition = nn::Partition::kTensor;
      expect_unused("partition", outline(plain) == outline(options_));

      set(workers, {stage, "parallel.no_sync=true"});
      plain = options_;
      plain.parallel.no_sync = false;
      expect_unused("no_sync", outline(plain) == outline(options_));

      for (int most = 3; most <= 7; ++most) {
        set(workers, {stage, "parallel.max_unsharded_blocks=" + std::to_string(most)});
        plain = options_;
        plain.parallel.max_unsharded_blocks = most - 1;
        expect_unused("max_unsharded_blocks " + std::to_string(most),
                      outline(plain) == outline(options_));
      }
    }
  }
}

TEST_F(UnusedSettings, SayWhyAndWhatTheyAreFor) {
  set(4, {"parallel.partition=layer", "parallel.no_sync=true", "parallel.max_unsharded_blocks=1"});
  EXPECT_THAT(
      unused(),
      ElementsAre(HasSubstr("parallel.partition = \"layer\" has no effect: with parallel.zero = 0 "
                            "nothing is sharded"),
                  HasSubstr("parallel.no_sync = true has no effect: with parallel.zero = 0"),
                  HasSubstr("parallel.max_unsharded_blocks = 1 has no effect: no parameters are "
                            "gathered; it applies to parallel.zero = 3 and offload.parameters")));
  set(4, {"parallel.zero=3", "parallel.max_unsharded_blocks=9"});
  EXPECT_THAT(unused(), ElementsAre(HasSubstr("blocks are gathered one step ahead, so at most")));
  set(4, {"parallel.zero=3", "parallel.no_sync=true", "train.micro_batch_size=6"});
  EXPECT_THAT(unused(), ElementsAre(HasSubstr("one micro-batch a step")));
  set(4, {"parallel.zero=3", "parallel.no_sync=true", "parallel.reduction=tree"});
  EXPECT_THAT(unused(), ElementsAre(HasSubstr("keeps whole gradients anyway")));
}

TEST_F(UnusedSettings, OneConfigurationMayBeRunWithAnyNumberOfWorkers) {
  set(1, {"parallel.zero=3", "parallel.partition=layer", "parallel.no_sync=true",
          "parallel.max_unsharded_blocks=5"});
  EXPECT_THAT(unused(), IsEmpty());
  set(1,
      {"parallel.zero=3", "parallel.quantized_weights=int8", "parallel.secondary_partition=true"});
  EXPECT_THAT(unused(), IsEmpty());
}

TEST_F(UnusedSettings, AreNoneOfThoseThatNobodySetOrThatWaitForAStage) {
  set(4, {});
  options_.parallel.no_sync = true;
  options_.parallel.partition = nn::Partition::kLayer;
  EXPECT_THAT(unused(), IsEmpty());
  set(4, {"memory.auto=true", "parallel.partition=layer", "parallel.no_sync=true"});
  EXPECT_THAT(unused(), IsEmpty());
  set(4, {"memory.auto=true", "parallel.zero=0", "parallel.partition=layer"});
  EXPECT_THAT(unused(), ElementsAre(HasSubstr("parallel.partition")));
  set(4, {"parallel.zero=0", "parallel.partition=tensor", "parallel.no_sync=false",
          "parallel.max_unsharded_blocks=2"});
  EXPECT_THAT(unused(), IsEmpty());
}

TEST_F(UnusedSettings, AWindowOfBlocksFromTheHostIsAsWideAsItIsSet) {
  for (const int workers : {1, 2}) {
    set(workers, {"offload.parameters=host", "offload.optimizer=host"});
    std::optional<std::size_t> narrower;
    for (const int most : {1, 2, 3}) {
      options_.parallel.max_unsharded_blocks = most;
      const std::size_t bytes = plan_run(options_, *ops_).bytes(Tier::kDevice);
      if (narrower) {
        EXPECT_GE(bytes, *narrower) << most;
        EXPECT_TRUE(most > 2 || bytes > *narrower) << most;
      }
      narrower = bytes;
    }
  }
}

}  // namespace
}  // namespace lockstep::train::idle_settings_test
