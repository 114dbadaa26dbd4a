// A setting is called unused exactly where the run with it is the run without it.
#include "lockstep/train/run/unused_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/parallel/traffic.h"
#include "lockstep/train/memory/run_plan.h"

namespace lockstep::train::unused_settings_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Stands for workers on two nodes, which no setting says.
constexpr const char* kTwoNodes = "two nodes";

class UnusedSettings : public ::testing::Test {
 protected:
  // Applies all of these settings, with this number of workers.
  void set(int workers, const std::vector<std::string>& settings) {
    settings_ = RunSettings();
    for (const char* setting :
         {"model.layers=4", "model.hidden=32", "model.heads=2", "model.vocabulary=53",
          "train.seq_len=16", "train.global_batch_size=24", "train.micro_batch_size=1"}) {
      settings_.config.set(setting);
    }
    for (const std::string& setting : settings) settings_.config.set(setting);
    options_.batch.workers = workers;
  }
  std::vector<std::string> unused() const {
    return unused_settings(settings_.options, settings_.config, *ops_);
  }

  // What a run allocates and sends; two runs with other effects differ in it.
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

  RunSettings settings_;
  TrainOptions& options_ = settings_.options.train;
  const std::unique_ptr<Ops> ops_ = make_reference_ops();
};

// A key that was given, the settings with which a run of two workers does not read it, and those
// with which it does.
struct Case {
  std::string key;
  std::string value;
  std::vector<std::string> unread;
  std::vector<std::string> read;
};

std::vector<Case> cases() {
  const std::string servers = "parallel.strategy=parameter_server";
  const std::string linear = "model.family=linear";
  const std::string mpi = "comm.backend=mpi";
  const std::string zero = "parallel.zero=1";
  const std::string f16 = "train.precision=f16";
  const std::string decay = "schedule.decay=cosine";
  const std::string sample = "sample.every=5";
  const std::string file = "offload.optimizer=file";
  const std::string llama = "model.family=llama";
  const std::string linear_scaling = "model.rope_scaling=linear";
  const std::string llama3_scaling = "model.rope_scaling=llama3";
  const std::vector<std::string> longrope = {llama, "model.rope_scaling=longrope",
                                             "model.rope_short_factors=1,1,1,1,1,1,1,2",
                                             "model.rope_long_factors=2,2,2,2,2,2,2,2"};
  return {
      {"data.field", "text", {"data.tokens=a.tokens"}, {"data.text=a.jsonl"}},
      {"data.tokenizer", "bpe", {"data.table=a.csv"}, {"data.text=a.txt"}},
      {"data.bpe_vocabulary", "1000", {}, {"data.tokenizer=bpe"}},
      {"data.validation_fraction", "0.2", {"data.validation_text=b.txt"}, {}},
      {"data.mask_fraction", "0.2", {}, {"model.family=bert"}},
      {"model.family", "llama", {"model.name=gpt2-124m"}, {}},
      {"model.layers", "3", {linear}, {}},
      {"model.hidden", "48", {linear}, {}},
      {"model.heads", "4", {linear}, {}},
      {"model.kv_heads", "1", {"model.family=encoder-decoder"}, {"model.family=llama"}},
      {"model.feed_forward", "64", {linear}, {}},
      {"model.vocabulary", "60", {linear}, {}},
      {"model.positions", "32", {linear}, {}},
      {"model.features", "3", {}, {linear}},
      {"model.norm_epsilon", "1e-6", {linear}, {}},
      {"model.head_size",
       "6",
       {"model.family=encoder-decoder"},
       {"model.family=llama", "model.hidden=16", "model.heads=2"}},
      {"model.qkv_bias", "true", {"model.family=encoder-decoder"}, {"model.family=llama"}},
      {"model.window", "4", {"model.family=encoder-decoder"}, {"model.family=phi3"}},
      {"model.unwindowed_layers", "1", {llama}, {llama, "model.window=4"}},
      {"model.attention_softcap", "20", {llama}, {"model.family=gemma2"}},
      {"model.logit_softcap", "0", {llama}, {"model.family=gemma2"}},
      {"model.query_pre_attn_scalar",
       "3",
       {"model.family=encoder-decoder"},
       {"model.family=gemma2"}},
      {"model.rotary_share",
       "0.5",
       {llama},
       {"model.family=gpt-neox", "model.hidden=16", "model.heads=2"}},
      {"model.decoder_layers", "1", {"model.family=encoder-decoder"}, {"model.family=t5"}},
      {"model.relative_buckets", "16", {llama}, {"model.family=t5"}},
      {"model.relative_distance", "64", {llama}, {"model.family=t5-v1.1"}},
      {"model.activation", "relu", {llama}, {"model.family=gpt2"}},
      {"model.parallel_residual",
       "false",
       {},
       {"model.family=gpt-neox", "model.hidden=16", "model.heads=2"}},
      {"model.rope_theta", "500", {}, {"model.family=llama"}},
      {"model.rope_scaling", "linear", {}, {"model.family=llama"}},
      {"model.rope_factor", "2", {llama}, {llama, linear_scaling}},
      {"model.rope_original_positions", "4", {llama, linear_scaling}, {llama, llama3_scaling}},
      {"model.rope_low_freq_factor", "2", {llama, linear_scaling}, {llama, llama3_scaling}},
      {"model.rope_high_freq_factor", "5", {llama, linear_scaling}, {llama, llama3_scaling}},
      {"model.rope_short_factors", "1,1,1,1,1,1,1,1", {llama, llama3_scaling}, longrope},
      {"model.rope_long_factors", "2,2,2,2,2,2,2,3", {llama, llama3_scaling}, longrope},
      {"model.rope_attention_factor", "1.2", {llama, llama3_scaling}, longrope},
      {"model.experts", "4", {}, {"model.family=mixtral"}},
      {"model.experts_per_token", "1", {}, {"model.family=mixtral"}},
      {"model.router_loss", "0.1", {}, {"model.family=mixtral"}},
      {"model.dropout", "0.1", {linear}, {}},
      {"model.tie_word_embeddings", "true", {"model.family=encoder-decoder"}, {}},
      {"train.seq_len", "8", {linear}, {}},
      {"train.gradient_dtype", "f32", {"parallel.reduction=tree"}, {}},
      {"train.gradient_dtype", "f32", {"train.precision=f32"}, {}},
      {"train.expert_capacity", "1.5", {}, {"model.family=mixtral"}},
      {"train.steps", "7", {"train.epochs=2"}, {}},
      {"train.validate_every", "7", {"data.validation_fraction=0"}, {}},
      {"train.validate_batches", "7", {"data.validation_fraction=0"}, {}},
      {"train.early_stopping", "7", {"data.validation_fraction=0"}, {}},
      {"train.early_stopping_delta", "0.5", {}, {"train.early_stopping=2"}},
      {"checkpoint.keep_best", "7", {"data.validation_fraction=0"}, {}},
      {"train.trace_steps", "7", {}, {"train.trace=true"}},
      {"sample.tokens", "7", {}, {sample}},
      {"sample.temperature", "0.5", {}, {sample}},
      {"sample.prompt", "Once", {}, {sample}},
      {"live.address", "0.0.0.0", {}, {"live.port=8080"}},
      {"live.token_file", "token", {}, {"live.port=8080"}},
      {"debug.slow_factor", "2", {}, {"debug.slow_rank=1"}},
      {"optimizer.beta1", "0.8", {"optimizer.kind=sgd"}, {}},
      {"optimizer.beta2", "0.8", {"optimizer.kind=sgd"}, {}},
      {"optimizer.epsilon", "1e-6", {"optimizer.kind=sgd"}, {}},
      {"optimizer.momentum", "0.5", {}, {"optimizer.kind=sgd"}},
      {"schedule.warmup_ratio", "0.1", {"schedule.warmup_steps=5"}, {}},
      {"schedule.stable_steps", "2", {}, {decay}},
      {"schedule.decay_steps", "50", {}, {decay}},
      {"schedule.min_lr_ratio", "0.2", {}, {decay}},
      {"schedule.min_lr_ratio", "0.2", {decay, "schedule.min_lr=1e-5"}, {decay}},
      {"schedule.min_lr", "1e-5", {}, {decay}},
      {"loss_scale.initial", "8", {}, {f16}},
      {"loss_scale.growth_interval", "8", {}, {f16}},
      {"loss_scale.min", "8", {}, {f16}},
      {"parallel.bucket_mb", "8", {servers}, {}},
      {"parallel.bucket_mb", "8", {zero}, {}},
      {"parallel.first_bucket_mb", "8", {servers}, {}},
      {"parallel.algorithm", "ring", {servers}, {}},
      {"parallel.overlap", "false", {servers}, {zero}},
      {"parallel.partition", "layer", {}, {zero}},
      {"parallel.no_sync", "true", {}, {"parallel.zero=2"}},
      {"parallel.max_unsharded_blocks", "1", {}, {"parallel.zero=3"}},
      {"parallel.secondary_partition", "true", {"parallel.zero=3"}, {kTwoNodes}},
      {"parallel.quantized_gradients", "int8", {zero}, {kTwoNodes}},
      {"parallel.compression_ratio", "0.1", {}, {"parallel.compression=topk"}},
      {"parallel.compression_ratio",
       "0.1",
       {"parallel.compression=int8"},
       {"parallel.compression=topk"}},
      {"parallel.servers", "2", {}, {servers}},
      {"parallel.server_placement", "dedicated", {}, {servers}},
      {"parallel.server_threads", "2", {}, {servers}},
      {"parallel.consistency", "asp", {}, {servers}},
      {"parallel.staleness", "2", {}, {servers, "parallel.consistency=ssp"}},
      {"parallel.staleness", "2", {servers}, {servers, "parallel.consistency=ssp"}},
      {"parallel.schedule", "fifo", {}, {servers}},
      {"parallel.tensor_chunks", "2", {}, {"parallel.tensor=2"}},
      {"parallel.tensor_chunks",
       "2",
       {"parallel.tensor=2", "parallel.sequence=true"},
       {"parallel.tensor=2"}},
      {"parallel.pipeline_schedule", "gpipe", {}, {"parallel.pipeline=2"}},
      {"parallel.pipeline_chunks",
       "3",
       {"parallel.pipeline=2"},
       {"parallel.pipeline=2", "parallel.pipeline_schedule=interleaved"}},
      {"parallel.pipeline_slices",
       "3",
       {"parallel.pipeline=2"},
       {"parallel.pipeline=2", "parallel.pipeline_schedule=terapipe", "train.micro_batch_size=1"}},
      {"parallel.context_attention", "heads", {}, {"parallel.context=2"}},
      {"parallel.slice_mb", "2", {}, {servers}},
      {"parallel.credit_mb", "2", {}, {servers}},
      {"parallel.check_every", "7", {servers, "parallel.consistency=asp"}, {zero}},
      {"survive.mirror", "true", {}, {zero}},
      {"survive.mirror", "true", {zero, "offload.optimizer=host"}, {zero}},
      {"survive.mirror", "true", {servers, "parallel.server_placement=dedicated"}, {servers}},
      {"survive.mirror", "true", {servers, "parallel.compression=int8"}, {"parallel.zero=3"}},
      {"survive.mirror",
       "true",
       {servers, "parallel.consistency=asp"},
       {servers, "parallel.consistency=asp", "parallel.servers=2"}},
      {"survive.evict_slow", "3", {servers}, {}},
      {"survive.evict_slow", "3", {"parallel.tensor=2"}, {}},
      {"offload.folder", "/tmp", {}, {file}},
      {"offload.overlap", "false", {"offload.optimizer=host"}, {file}},
      {"offload.bandwidth", "1GB/s", {}, {file}},
      {"comm.transport", "tcp", {mpi}, {}},
      {"comm.transport", "shm", {"comm.backend=threads"}, {}},
      {"comm.verify", "all", {mpi}, {}},
      {"comm.encrypt", "on", {mpi}, {}},
      {"comm.encrypt", "on", {"comm.backend=threads"}, {}},
      {"comm.trusted_network", "true", {"comm.encrypt=off"}, {}},
      {"comm.algorithm.broadcast", "tree", {mpi}, {}},
      {"comm.algorithm.scatter", "naive", {}, {}},
      {"comm.algorithm.gather", "naive", {mpi}, {}},
      {"comm.algorithm.reduce", "naive", {}, {zero, "parallel.partition=layer"}},
      {"comm.algorithm.all_reduce", "ring", {servers}, {}},
      {"comm.algorithm.all_reduce", "ring", {"parallel.algorithm=tree"}, {}},
      {"comm.algorithm.all_reduce", "ring", {zero}, {}},
      {"comm.algorithm.all_gather", "ring", {mpi}, {}},
      {"comm.algorithm.reduce_scatter", "ring", {}, {zero}},
      {"comm.algorithm.all_to_all", "naive", {}, {"parallel.compression=int8"}},
      {"comm.grid", "2x1", {mpi}, {}},
      {"comm.window", "8Ki", {mpi}, {}},
      {"comm.cache_dir", "/tmp/x", {mpi}, {}},
      {"comm.measure", "false", {mpi}, {}},
      {"comm.interface", "10.0.0.1", {"comm.backend=threads"}, {}},
      {"comm.check", "false", {}, {mpi}},
      {"comm.emulate", "1Gbit,1us", {mpi}, {}},
      {"comm.trusted_network", "true", {mpi}, {}},
      {"comm.trusted_network", "true", {"comm.encrypt=on"}, {}},
      {"comm.emulated_nodes", "2", {mpi}, {}},
      {"comm.device_backend", "nccl", {}, {}},
      {"device.share", "true", {}, {}},
  };
}

TEST_F(UnusedSettings, EveryKeyIsAlwaysReadOrHasARule) {
  std::multiset<std::string_view> known(always_read_settings().begin(),
                                        always_read_settings().end());
  for (const SettingRule& rule : setting_rules()) known.insert(rule.key);
  for (const std::string_view key : settings_.config.keys()) {
    EXPECT_EQ(known.count(key), 1u) << key << ": say in setting_rules_*.cpp which runs read it";
  }
  EXPECT_EQ(known.size(), settings_.config.keys().size()) << "of keys that there are not";
}

TEST_F(UnusedSettings, EveryRuleReportsItsKeyWhereARunDoesNotReadIt) {
  std::set<std::string> tried;
  for (const Case& each : cases()) {
    const std::string setting = each.key + "=" + each.value;
    const auto is_reported = [&] {
      return std::ranges::any_of(unused(), [&](const std::string& text) {
        return text.starts_with(each.key + " = ") &&
               text.find(" has no effect: ") != std::string::npos;
      });
    };
    std::vector<std::string> settings = each.unread;
    settings.push_back(setting);
    set(2, settings);
    EXPECT_TRUE(is_reported()) << setting << " " << ::testing::PrintToString(each.unread);
    settings = each.read;
    const bool on_two_nodes = std::erase(settings, kTwoNodes) > 0;
    if (on_two_nodes) settings.emplace_back("parallel.zero=3");
    settings.push_back(setting);
    set(2, settings);
    if (on_two_nodes) options_.parallel.machines = 2;
    // By training, or by the CPU's operations that this test has.
    const bool is_never_read = each.key == "comm.algorithm.scatter" ||
                               each.key == "comm.device_backend" || each.key == "device.share";
    EXPECT_EQ(is_reported(), is_never_read)
        << setting << " " << ::testing::PrintToString(each.read);
    tried.insert(each.key);
  }
  for (const SettingRule& rule : setting_rules()) {
    EXPECT_TRUE(tried.contains(std::string(rule.key))) << rule.key << " has no case here";
  }
}

TEST_F(UnusedSettings, OfARunsOwnFolderWereReportedWhenItBegan) {
  set(2, {});
  settings_.options.dir = "runs/a";
  settings_.config.read_toml("parallel.staleness = 2", "runs/a/config.toml");
  EXPECT_THAT(unused(), IsEmpty());
  settings_.config.read_toml("parallel.staleness = 2", "job.toml");
  EXPECT_THAT(unused(), ElementsAre(HasSubstr("parallel.staleness = 2 has no effect")));
}

TEST_F(UnusedSettings, NamesOfOtherTrainersWithoutEffectAreListed) {
  set(1, {"dataloader_num_workers=4", "logging_dir=logs"});
  EXPECT_THAT(unused(), ElementsAre("dataloader_num_workers, logging_dir of other trainers have no "
                                    "effect here"));
}

TEST_F(UnusedSettings, AreThoseOfReductionsWithParameterServers) {
  const std::string servers = "parallel.strategy=parameter_server";
  set(2, {servers});
  EXPECT_THAT(unused(), IsEmpty());
  set(2, {servers, "parallel.overlap=false", "parallel.algorithm=ring"});
  EXPECT_THAT(unused(),
              UnorderedElementsAre(HasSubstr("parallel.overlap = false has no effect"),
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
}  // namespace lockstep::train::unused_settings_test
