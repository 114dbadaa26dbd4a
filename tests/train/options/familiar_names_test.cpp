#include "lockstep/train/options/familiar_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/train/options/run_options.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

class FamiliarNames : public ::testing::Test {
 protected:
  FamiliarNames() { bind(config, options); }

  RunOptions options;
  Config config;
};

TEST_F(FamiliarNames, OfHuggingFacesTrainer) {
  config.read_json(R"({
    "output_dir": "out", "max_steps": 50, "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 8, "learning_rate": 3e-4, "warmup_steps": 10,
    "lr_scheduler_type": "cosine", "weight_decay": 0.05, "adam_beta1": 0.8, "adam_beta2": 0.97,
    "adam_epsilon": 1e-7, "max_grad_norm": 0.5, "seed": 7, "bf16": false, "fp16": true,
    "save_steps": 25, "save_total_limit": 3, "optim": "adamw_torch", "gradient_checkpointing": true
  })",
                   "arguments.json");
  options = completed(options);
  EXPECT_EQ(options.dir, "out");
  EXPECT_EQ(options.steps, 50);
  EXPECT_EQ(options.train.batch.sequences, 32);
  EXPECT_EQ(options.train.schedule.learning_rate, 3e-4);
  EXPECT_EQ(options.train.schedule.warmup_steps, 10);
  EXPECT_EQ(options.train.schedule.decay, optim::LearningRateDecay::kCosine);
  EXPECT_EQ(options.train.schedule.decay_steps, 50) << "a decay ends with the run";
  EXPECT_EQ(options.train.optimizer.kind, optim::OptimizerKind::kAdamW);
  EXPECT_EQ(options.train.optimizer.weight_decay, 0.05);
  EXPECT_EQ(options.train.optimizer.beta1, 0.8);
  EXPECT_EQ(options.train.optimizer.beta2, 0.97);
  EXPECT_EQ(options.train.optimizer.epsilon, 1e-7);
  EXPECT_EQ(options.train.optimizer.max_grad_norm, 0.5);
  EXPECT_EQ(options.train.seed, 7);
  EXPECT_EQ(options.train.precision, plan::Precision::kF16);
  EXPECT_EQ(options.train.recompute, RecomputeChoice::kFull);
  EXPECT_EQ(options.checkpoint.every, 25);
  EXPECT_EQ(options.checkpoint.keep_last, 3);
}

TEST_F(FamiliarNames, OfDeepSpeedsConfiguration) {
  config.read_json(R"({
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_clipping": 2.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8,
                                             "weight_decay": 0.01}},
    "scheduler": {"type": "WarmupDecayLR",
                  "params": {"warmup_num_steps": 5, "total_num_steps": "auto"}},
    "fp16": {"enabled": true, "initial_scale_power": 12, "loss_scale_window": 100},
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"offload_optimizer": {"device": "cpu", "pin_memory": true},
                          "offload_param": {"device": "cpu", "nvme_path": "/local/disk"}}
  })",
                   "deepspeed.json");
  options = completed(options);
  EXPECT_EQ(options.train.offload.tiers.optimizer, Tier::kHost);
  EXPECT_EQ(options.train.offload.tiers.gradients, Tier::kHost);
  EXPECT_EQ(options.train.offload.tiers.parameters, Tier::kHost);
  EXPECT_EQ(options.train.offload.tiers.activations, Tier::kDevice);
  EXPECT_EQ(options.train.offload.folder, "/local/disk");
  EXPECT_EQ(solved(options.train.batch).accumulation, 16);
  EXPECT_EQ(options.train.optimizer.max_grad_norm, 2.0);
  EXPECT_EQ(options.train.optimizer.beta1, 0.9);
  EXPECT_EQ(options.train.optimizer.beta2, 0.999);
  EXPECT_EQ(options.train.schedule.learning_rate, 1e-4);
  EXPECT_EQ(options.train.schedule.decay, optim::LearningRateDecay::kLinear);
  EXPECT_EQ(options.train.schedule.warmup_steps, 5);
  EXPECT_EQ(options.train.precision, plan::Precision::kF16);
  EXPECT_EQ(options.train.loss_scale.initial, 4096);
  EXPECT_EQ(options.train.loss_scale.growth_interval, 100);
}

TEST_F(FamiliarNames, OfZeroPlusPlus) {
  config.read_json(R"({"zero_optimization": {
    "stage": 3, "zero_quantized_weights": true, "zero_hpz_partition_size": 8,
    "zero_quantized_gradients": true}})",
                   "deepspeed.json");
  EXPECT_EQ(options.train.parallel.quantized_weights, parallel::Quantization::kInt8);
  EXPECT_EQ(options.train.parallel.quantized_gradients, parallel::Quantization::kInt4);
  EXPECT_TRUE(options.train.parallel.secondary_partition);
  config.read_json(R"({"zero_optimization": {"zero_hpz_partition_size": 1,
    "zero_quantized_weights": false}})",
                   "deepspeed.json");
  EXPECT_FALSE(options.train.parallel.secondary_partition);
}

TEST_F(FamiliarNames, OfWhatPeopleCopyFromTheManuals) {
  config.read_json(R"({
    "model_name_or_path": "gpt2", "train_file": "book.txt", "block_size": 128,
    "num_train_epochs": 3.0, "max_steps": -1, "warmup_ratio": 0.1, "lr_scheduler_type": "linear",
    "eval_strategy": "steps", "save_strategy": "no", "per_device_eval_batch_size": 8,
    "report_to": "none", "resume_from_checkpoint": true, "push_to_hub": false,
    "fp16": {"enabled": true, "loss_scale": 0, "hysteresis": 2, "min_loss_scale": 1},
    "zero_optimization": {"stage": 2, "overlap_comm": false},
    "scheduler": {"params": {"warmup_min_lr": 0, "warmup_type": "linear"}}
  })",
                   "copied.json");
  EXPECT_EQ(options.init_from, "gpt2");
  EXPECT_EQ(options.data.text, "book.txt");
  EXPECT_EQ(options.train.batch.sequence, 128);
  EXPECT_EQ(options.epochs, 3);
  EXPECT_EQ(options.train.parallel.zero, 2);
  EXPECT_EQ(options.train.schedule.min_lr_ratio, 0) << "others' schedules go down to zero";
  EXPECT_EQ(options.checkpoint.every, 0);
  EXPECT_FALSE(options.train.parallel.overlap);
  options.train.batch.sequences = 4;
  options = completed(options);
  options = with_steps(options, 101);
  EXPECT_EQ(options.steps, 76) << "303 sequences by 4";
  EXPECT_EQ(options.train.schedule.warmup_steps, 8);
  EXPECT_EQ(options.train.schedule.decay_steps, 76);
}

// As it stands in the manual of Hugging Face's integration of DeepSpeed.
TEST_F(FamiliarNames, OfTheThirdStageAsItsManualHasIt) {
  config.read_json(R"({
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000,
             "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                              "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                 "warmup_num_steps": "auto"}},
    "zero_optimization": {
      "stage": 3,
      "offload_optimizer": {"device": "cpu", "pin_memory": true},
      "offload_param": {"device": "cpu", "pin_memory": true},
      "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
      "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
      "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
      "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true},
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": false
  })",
                   "ds_config_zero3.json");
  EXPECT_EQ(options.train.parallel.zero, 3);
  const nn::Tiers& tiers = options.train.offload.tiers;
  EXPECT_EQ(tiers.optimizer, Tier::kHost);
  EXPECT_EQ(tiers.parameters, Tier::kHost);
  EXPECT_EQ(options.train.loss_scale.growth_interval, 1000);
  EXPECT_EQ(options.log_every, 2000);
}

TEST_F(FamiliarNames, OfOtherSectionsOfDeepSpeed) {
  config.read_json(R"({
    "activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": true,
      "contiguous_memory_optimization": false, "number_checkpoints": null, "profile": false},
    "aio": {"block_size": 262144, "queue_depth": 32, "thread_count": 1, "single_submit": false,
      "overlap_events": true},
    "flops_profiler": {"enabled": false}, "communication_data_type": "fp32",
    "tensorboard": {"enabled": true, "output_path": "logs", "job_name": "a"}
  })",
                   "ds_config.json");
  EXPECT_EQ(options.train.offload.tiers.activations, Tier::kHost);
  EXPECT_EQ(options.train.gradient_dtype, GradientChoice::kF32);
}

TEST_F(FamiliarNames, OfARunOfTheTrainerThatWasWrittenDown) {
  config.read_json(R"({
    "load_best_model_at_end": false, "torch_compile": false, "group_by_length": false,
    "ddp_backend": null, "ddp_bucket_cap_mb": 40, "ddp_timeout": 1800, "local_rank": -1,
    "use_cpu": true, "save_safetensors": true, "auto_find_batch_size": false, "fsdp": [],
    "deepspeed": null, "log_level": "passive", "eval_delay": 0, "half_precision_backend": "auto",
    "dataloader_persistent_workers": false, "full_determinism": false, "adafactor": false,
    "average_tokens_across_devices": true, "train_sampling_strategy": "random", "debug": "",
    "use_liger_kernel": false, "eval_do_concat_batches": true, "past_index": -1
  })",
                   "arguments.json");
  EXPECT_EQ(options.train.parallel.bucket_mb, 40);
  EXPECT_EQ(options.comm.timeout, std::chrono::minutes(30));
}

TEST_F(FamiliarNames, StepsCountForMoreThanEpochsWhicheverComesFirst) {
  config.set("num_train_epochs=3");
  config.set("max_steps=7");
  EXPECT_EQ(options.epochs, 0);
  config.set("num_train_epochs=3");
  EXPECT_EQ(options.epochs, 0);
  EXPECT_EQ(options.steps, 7);
}

TEST_F(FamiliarNames, AWarmupBelowOneIsAPartOfTheRun) {
  config.set("warmup_steps=7");
  EXPECT_EQ(options.train.schedule.warmup_steps, 7);
  config.set("warmup_steps=0");
  config.set("warmup_steps=0.05");
  EXPECT_EQ(options.train.schedule.warmup_steps, 0);
  EXPECT_EQ(options.warmup_ratio, 0.05);
}

TEST_F(FamiliarNames, ThatMeanNothingHereAreNamed) {
  const auto refusal = [&](const char* setting) {
    try {
      config.set(setting);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("hub_token=x"), HasSubstr("unknown key 'hub_token'"));
  EXPECT_THAT(refusal("learning_rat=1"), HasSubstr("did you mean learning_rate?"));
  EXPECT_THAT(refusal("push_to_hub=true"), HasSubstr("only false"));
  EXPECT_THAT(refusal("load_best_model_at_end=true"), HasSubstr("last parameters"));
  EXPECT_THAT(refusal("deepspeed=ds.json"), HasSubstr("give that file itself"));
  EXPECT_THAT(refusal("validation_split_percentage=much"),
              HasSubstr("validation_split_percentage"));
  EXPECT_THAT(refusal("zero_optimization.stage=4"), HasSubstr("parallel.zero"));
  EXPECT_THAT(refusal("save_strategy=epoch"), HasSubstr("only steps or no"));
  EXPECT_THAT(refusal("resume_from_checkpoint=out/checkpoint-500"), HasSubstr("run.init_from"));
}

TEST_F(FamiliarNames, StandBesideTheKeysThatScriptsRelyOn) {
  const std::string manual = config.describe();
  for (const char* key : {"run.dir", "data.text", "data.tokens", "train.steps",
                          "train.global_batch_size", "train.micro_batch_size", "train.seq_len",
                          "train.precision", "train.seed", "model.name", "memory.limit"}) {
    EXPECT_THAT(manual, HasSubstr(std::string(key) + " = "));
  }
}

}  // namespace
}  // namespace lockstep::train
