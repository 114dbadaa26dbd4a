// Keys that were renamed: every former name still sets its key, with the same meaning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "lockstep/train/options/run_options.h"

namespace lockstep::train {
namespace {

using ::testing::Contains;
using ::testing::Not;

struct Renamed {
  std::string_view before;  // as an argument
  std::string_view now;     // as Config::values() has it
};
constexpr Renamed kRenamed[] = {
    {"run.from=a", "run.init_from = \"a\""},
    {"model.epsilon=0.5", "model.norm_epsilon = 0.5"},
    {"model.theta=5", "model.rope_theta = 5"},
    {"model.logits=own", "model.tie_word_embeddings = \"false\""},
    {"train.seq=8", "train.seq_len = 8"},
    {"train.batch=6", "train.global_batch_size = 6"},
    {"train.micro_batch=3", "train.micro_batch_size = 3"},
    {"train.accumulation=2", "train.gradient_accumulation_steps = 2"},
    {"train.gradients=f32", "train.gradient_dtype = \"f32\""},
    {"parallel.most_gathered=5", "parallel.max_unsharded_blocks = 5"},
    {"parallel.keep_at_turn=false", "parallel.reshard_after_forward = true"},
    {"parallel.hold_gradients=true", "parallel.no_sync = true"},
    {"parallel.gather_weights=int8", "parallel.quantized_weights = \"int8\""},
    {"parallel.secondary=true", "parallel.secondary_partition = true"},
    {"parallel.reduce_gradients=int4", "parallel.quantized_gradients = \"int4\""},
    {"parallel.server_place=own", "parallel.server_placement = \"dedicated\""},
    {"parallel.piece_mb=2", "parallel.slice_mb = 2"},
    {"optimizer.decay=0.25", "optimizer.weight_decay = 0.25"},
    {"optimizer.clip=0.5", "optimizer.max_grad_norm = 0.5"},
    {"schedule.rate=0.125", "optimizer.learning_rate = 0.125"},
    {"schedule.warmup=7", "schedule.warmup_steps = 7"},
    {"schedule.decline=cosine", "schedule.decay = \"cosine\""},
    {"schedule.steps=70", "schedule.decay_steps = 70"},
    {"schedule.floor=0.75", "schedule.min_lr_ratio = 0.75"},
    {"loss_scale.patience=9", "loss_scale.growth_interval = 9"},
    {"checkpoint.overlap=false", "checkpoint.async_save = false"},
    {"comm.hosts=2", "comm.emulated_nodes = 2"},
};

struct Bound {
  RunOptions options;
  Config config;
  Bound() { bind(config, options); }
};

TEST(FormerNames, SetTheirKeys) {
  for (const Renamed& key : kRenamed) {
    Bound bound;
    EXPECT_THAT(bound.config.values(), Not(Contains(key.now))) << "it is the default";
    bound.config.set(key.before);
    EXPECT_THAT(bound.config.values(), Contains(key.now)) << key.before;
  }
}

TEST(FormerNames, KeepWhatTheirDefaultsMeant) {
  for (const std::string_view setting :
       {"model.logits=auto", "parallel.keep_at_turn=true", "parallel.gather_weights=exact",
        "parallel.reduce_gradients=exact", "parallel.server_place=beside"}) {
    Bound bound;
    const auto before = bound.config.values();
    bound.config.set(setting);
    EXPECT_EQ(bound.config.values(), before) << setting;
  }
}

TEST(FormerNames, AreAllHere) {
  const std::string help = Bound().config.describe();
  std::size_t explained = 0;
  for (auto at = help.find("(formerly "); at != std::string::npos;
       at = help.find("(formerly ", at + 1))
    ++explained;
  EXPECT_EQ(explained, std::size(kRenamed));
}

}  // namespace
}  // namespace lockstep::train
