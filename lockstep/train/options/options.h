// Every setting of a training run, with its default.
//
//   [model]
//   name = "gpt2-124m"        # or family, layers, hidden, heads, ... of your own
//   [train]
//   seq_len = 1024
//   global_batch_size = 32    # sequences of a step
//   micro_batch_size = 4      # sequences that are computed at once
//   [memory]
//   limit = "8GiB"
//
// base/config/config.h reads them; options.cpp documents each key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/config/config.h"
#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/nn/models/models.h"
#include "lockstep/nn/stage.h"
#include "lockstep/optim/loss_scale.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/parallel/communication/machines.h"
#include "lockstep/parallel/footprint.h"
#include "lockstep/parallel/offload/options.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/plan/memory.h"
#include "lockstep/plan/pipeline/timetable.h"
#include "lockstep/train/options/survive_options.h"

namespace lockstep::train {

enum class ModelFamily : std::uint8_t {
  kGpt2,
  kLlama,
  kBert,
  kMixtral,
  kQwen3,
  kPhi3,
  kGptNeox,
  kGemma2,
  kT5,
  kT5V11,
  kEncoderDecoder,  // for translation
  kLinear,          // y = weight x + bias
  kCustom,          // a program makes it (set_custom_model())
};
std::string_view name(ModelFamily family);  // "gpt2", ..., "encoder-decoder", "linear", "custom"
ModelFamily model_family(plan::Family family);

// The weights of the output layer.
enum class TieChoice : std::uint8_t {
  kAuto,    // the default of the family
  kTied,    // shared with the token embedding
  kUntied,  // separate
};

// How rotary positions are scaled (ops/rotary_scaling.h, nn/parts/long_rope.h).
enum class RopeScaling : std::uint8_t { kNone, kLinear, kLlama3, kLongRope };

// The activation between the two matrices of a feed-forward network.
enum class ActivationChoice : std::uint8_t {
  kAuto,      // the default of the family
  kGeluTanh,  // this and the next two as in ops::Activation
  kGeluErf,
  kRelu,
};

// A model by name, or by its sizes; 0: the default of the family.
struct ModelChoice {
  std::string name;
  ModelFamily family = ModelFamily::kGpt2;
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;
  int feed_forward = 0;
  int vocabulary = 0;
  int positions = 0;
  int features = 0;  // of the linear family
  double norm_epsilon = 0;
  double rope_theta = 10000;
  RopeScaling rope_scaling = RopeScaling::kNone;
  ops::RotaryScaling rope = {.factor = 8, .original_positions = 8192};  // where it scales
  // Of longrope, besides the original positions.
  std::vector<double> rope_short_factors = {};
  std::vector<double> rope_long_factors = {};
  double rope_attention_factor = 1;
  double rotary_share = 0;
  bool qkv_bias = false;
  int window = 0;
  int unwindowed_layers = 0;
  double attention_softcap = plan::parts_of(plan::Family::kGemma2).attention_softcap;
  double logit_softcap = plan::parts_of(plan::Family::kGemma2).logit_softcap;
  int query_pre_attn_scalar = 0;
  int decoder_layers = 0;  // this and the next two of t5
  int relative_buckets = 0;
  int relative_distance = 0;
  ActivationChoice activation = ActivationChoice::kAuto;
  bool parallel_residual = true;
  double dropout = 0;
  int experts = 0;  // this and the next two of mixtral
  int experts_per_token = 0;
  double router_loss = nn::kUsualRouterLoss;
  TieChoice tie_word_embeddings = TieChoice::kAuto;
};
// Whether it says which model it is; otherwise that of run.init_from is.
bool describes_model(const ModelChoice& model);

// sequences = micro * accumulation * readers. 0: not set. Any two of the first three determine the
// third; with one alone, every worker has one micro-batch. If the micro-batches do not divide
// evenly, the first workers have one more, and accumulation is theirs.
struct BatchChoice {
  int sequence = 0;   // tokens; 0: as long as the model has positions
  int sequences = 0;  // of a step, all workers together
  int micro = 0;
  int accumulation = 0;  // of a worker
  int workers = 1;       // how many there are; not a setting
  int context = 1;       // of these, how many have the same sequences; not a setting
  // Of a job whose number of workers changes: the most it has. Its batch and micro-batch are those
  // of that many. 0: it does not change; not a setting.
  int most_workers = 0;

  // Workers, or context groups of them, that have different sequences.
  int readers() const { return workers / context; }
};
// With all values filled in. Throws Error(kInvalidArgument) if they contradict each other.
BatchChoice solved(BatchChoice batch);
// The micro-batch sizes that divide a step of this many sequences, the largest first.
std::vector<int> divisors_of(int sequences);
parallel::StepPlan step_plan(const BatchChoice& batch);

// The type that gradients are kept in.
enum class GradientChoice : std::uint8_t {
  kAuto,     // like kCompute with one micro-batch a step; like kF32 with several
  kCompute,  // the precision's
  kF32,
};
std::string_view name(GradientChoice gradients);  // "auto", "compute", "f32"

// What backward recomputes.
enum class RecomputeChoice : std::uint8_t {
  kNone,  // this and the next two as in plan::Recompute, all blocks alike
  kSelective,
  kFull,
  kAuto,  // block by block, the cheapest that fits: settle_recompute() of train/memory/choice.h
};
std::string_view name(RecomputeChoice recompute);  // "none", "selective", "full", "auto"

struct TrainOptions;
// Makes a model that learns to continue sequences of tokens. Every call with the same options makes
// the same blocks. model.layers, model.hidden and so on are the caller's to use; model.vocabulary
// is that of the data where it is not set.
using ModelMaker = std::function<nn::Model(const TrainOptions&)>;

struct TrainOptions {
  ModelChoice model;
  ModelMaker make_model;  // of model.family = "custom"; not a setting
  BatchChoice batch;
  plan::Precision precision = plan::Precision::kBf16;
  GradientChoice gradient_dtype = GradientChoice::kAuto;
  double expert_capacity = 0;  // of a mixture (nn/parts/experts.h); 0: experts take all rows
  // Saves about a seventh of a run's memory for a few per cent of the time.
  RecomputeChoice recompute = RecomputeChoice::kSelective;
  // The modes that kAuto chose for each block; empty before. Not a setting.
  std::vector<plan::Recompute> recompute_of_blocks;
  parallel::ParallelOptions parallel;
  parallel::OffloadOptions offload;
  SurviveOptions survive;
  optim::OptimizerOptions optimizer;
  optim::ScheduleOptions schedule;
  optim::LossScaleOptions loss_scale;  // of f16
  std::string device = "auto";         // "cpu", "cuda", "cuda:1"; auto: a GPU that can be used
  bool share_device = false;           // ranks of a node may use the same GPU
  parallel::NodePlace node_place;      // of this rank; not a setting
  int threads = 0;                     // 0: one for each core this process may use
  int seed = 1;
  std::size_t memory_limit = 0;  // bytes; 0: none
  std::size_t device_limit = 0;  // the same for the device
  bool memory_auto = false;      // settings that are not set are chosen so that the run fits
  int slow_rank = -1;            // takes slow_factor times as long to compute; -1: none does
  double slow_factor = 3;
};

// Declares the keys; `options` must outlive `config` and stay in place.
void bind(Config& config, TrainOptions& options);
// Those of the device.
void bind_device(Config& config, TrainOptions& options);

// Throws what parallel::check() throws for settings that contradict each other or the number of
// workers, and Error(kInvalidArgument) for a debug.slow_rank out of range.
void check(const TrainOptions& options);

// A program's own model in place of the families that lockstep has: data, workers, ZeRO, offload,
// pipelines, checkpoints and reports are those of every run. Call it before settings are read.
// Groups that divide blocks (parallel.tensor, context, expert) are refused; the lockstep command,
// which lacks the model, names it in errors.
void set_custom_model(TrainOptions& options, ModelMaker make);

// What the models of the family are made of; nullptr: no plan::ModelShape describes them.
const plan::FamilyParts* parts_of(const TrainOptions& options);

// What follows from the options. shape_of() throws Error(kInvalidArgument) for a model that is not
// named, or named and described, or whose sizes do not fit together, and Error(kUnsupported) for
// the families that no plan::ModelShape describes (has_shape()); setup_of() throws for a sequence
// that is longer than the model's positions.
bool has_shape(const TrainOptions& options);
plan::ModelShape shape_of(const TrainOptions& options);
// The same for the encoder-decoder too, which formulas know and nn::make_model() does not.
plan::ModelShape formula_shape_of(const TrainOptions& options);
nn::EncoderDecoderShape encoder_decoder_shape_of(const TrainOptions& options);
ModelFamily family_of(const TrainOptions& options);
// Whether its models have an encoder and a decoder, and learn from pairs.
bool translates(const TrainOptions& options);
nn::ModelOptions model_options_of(const TrainOptions& options);
// What this rank has of it: its shards in a tensor group, the blocks of its pipeline stage.
nn::Model model_of(const TrainOptions& options);
// The tokens that this rank has of sequences of that length. Throws Error(kInvalidArgument) where
// ranks cannot divide them evenly.
nn::ContextGroup context_of(const TrainOptions& options, std::int64_t sequence);
// The same undivided, as checkpoints, exports and generation have it, however many ranks divide it
// in the run.
nn::Model whole_model_of(TrainOptions options);
// This rank's part of it, of all stages of a pipeline.
nn::Model unstaged_model_of(const TrainOptions& options);
// The pipeline of a worker, the order of its step, and which blocks its stages have. A worker
// without a pipeline has one stage.
plan::PipelineShape pipeline_shape_of(const TrainOptions& options);
plan::StepSchedule step_schedule_of(const TrainOptions& options);
nn::Cut cut_of(const TrainOptions& options);
// The lengths of the slices in which sequences go through its stages (nn/token_slice.h); empty:
// sequences are whole. By parallel.pipeline_slices, or those with the least computed time
// (plan/pipeline/token_slices.h). Throws Error(kInvalidArgument) for more slices than tokens.
std::vector<std::int64_t> token_slices_of(const TrainOptions& options);
// Whether tokens of its models depend on earlier ones alone.
bool can_slice_tokens(const TrainOptions& options);
// Times of the computations of its step, for a simulation.
plan::StepTimes step_times_of(const TrainOptions& options);
// How often a step of one worker adds to gradients: micro-batches, or slices of them.
std::int64_t most_backwards(const TrainOptions& options);
nn::Setup setup_of(const TrainOptions& options);
nn::OptimizerState optimizer_state_of(const TrainOptions& options);
int threads_of(const TrainOptions& options);
// The device that a worker computes on. Throws Error(kInvalidArgument) for an invalid name, and
// Error(kUnsupported) for settings that a requested GPU does not support; auto uses the CPU for
// those.
Device device_of(const TrainOptions& options);
// Throws what the first use of that device would throw. Call it before anything is created for the
// run.
void check_device(const TrainOptions& options);
// Why auto does not use an available GPU; empty: it does.
std::string unused_gpu(const TrainOptions& options);
// The operations of that device. Throws what make_ops() throws.
std::unique_ptr<Ops> make_ops(const TrainOptions& options);
// A worker among those of the run. Throws what solved() throws.
parallel::WorkerPosition worker_position_of(const TrainOptions& options, int worker = 0);

DType dtype_of(plan::Precision precision);

}  // namespace lockstep::train
