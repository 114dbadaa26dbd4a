// Which keys a run reads.
#include <fmt/format.h>

#include "lockstep/train/memory/mirror_memory.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/run/unused_settings.h"

namespace lockstep::train {
namespace rules {
namespace {

using Facts = SettingFacts;

const parallel::ParallelOptions& parallel_of(const Facts& facts) {
  return facts.options.train.parallel;
}

bool uses_servers(const Facts& facts) {
  return parallel_of(facts).strategy == parallel::StrategyKind::kParameterServer;
}

bool has_several_workers(const Facts& facts) { return facts.options.train.batch.workers > 1; }

// Whether memory.auto is free to choose the ZeRO stage.
bool stage_is_chosen(const Facts& facts) {
  return facts.options.train.memory_auto && !facts.config.is_set("parallel.zero");
}

std::string when(bool unused, std::string why) { return unused ? std::move(why) : ""; }

// data.*

std::string tokenizer(const Facts& facts) {
  return when(!facts.options.data.table.empty(), "data.table has numbers, not text");
}

std::string field(const Facts& facts) {
  const data::DataOptions& data = facts.options.data;
  return when(data.text.empty() && data.validation_text.empty(),
              "it is for JSON lines of data.text or data.validation_text");
}

std::string bpe_vocabulary(const Facts& facts) {
  return when(facts.options.data.tokenizer != "bpe",
              "it is for data.tokenizer = \"bpe\", which is learned from the text");
}

std::string validation_fraction(const Facts& facts) {
  const data::DataOptions& data = facts.options.data;
  return when(!data.validation_text.empty() || !data.validation_tokens.empty(),
              "the validation data has a file of its own");
}

std::string mask_fraction(const Facts& facts) {
  return when(family_of(facts.options.train) != ModelFamily::kBert,
              "only model.family = \"bert\" is asked for masked tokens");
}

std::string without_validation(const Facts& facts) {
  const data::DataOptions& data = facts.options.data;
  return when(data.validation_fraction == 0 && data.validation_text.empty() &&
                  data.validation_tokens.empty(),
              "with data.validation_fraction = 0 there is no validation data");
}

std::string early_stopping_delta(const Facts& facts) {
  return when(facts.options.early_stopping == 0, "with train.early_stopping = 0 no run ends early");
}

// model.* and train.*

bool is_family(const Facts& facts, ModelFamily family) {
  return family_of(facts.options.train) == family;
}

std::string family(const Facts& facts) {
  const std::string& model = facts.options.train.model.name;
  return when(!model.empty(), fmt::format("model.name = \"{}\" has its family already", model));
}

std::string of_transformers(const Facts& facts) {
  return when(is_family(facts, ModelFamily::kLinear),
              "a linear model has inputs (model.features) and nothing else");
}

std::string of_single_stacks(const Facts& facts) {
  return is_family(facts, ModelFamily::kEncoderDecoder)
             ? "an encoder-decoder has as many key/value heads as heads, and one table for all "
               "embeddings and logits"
             : of_transformers(facts);
}

// It may read any size.
bool is_custom(const Facts& facts) { return is_family(facts, ModelFamily::kCustom); }

std::string features(const Facts& facts) {
  if (is_custom(facts)) return "";
  return when(!is_family(facts, ModelFamily::kLinear),
              "only model.family = \"linear\" has features");
}

// That its family has a part, or that it may read any setting.
bool has_part(const Facts& facts, bool plan::FamilyParts::*part) {
  const plan::FamilyParts* parts = parts_of(facts.options.train);
  return is_custom(facts) || (parts != nullptr && parts->*part);
}

std::string of_part(const Facts& facts, bool plan::FamilyParts::*part, std::string_view what) {
  return when(!has_part(facts, part),
              fmt::format("only models of family {} have {}", plan::families_with(part), what));
}

std::string of_rotary(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::rotary, "rotary positions");
}

std::string rotary_share(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::partly_rotary, "rotary positions of a part of a head");
}

std::string head_size(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::gated, "heads of another width");
}

std::string window(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::gated, "windows of attention");
}

std::string unwindowed_layers(const Facts& facts) {
  if (std::string why = window(facts); !why.empty()) return why;
  return when(facts.options.train.model.window == 0 && !is_custom(facts),
              "with model.window = 0 no layer has a window");
}

std::string activation(const Facts& facts) {
  return when(!is_family(facts, ModelFamily::kGpt2) && !is_family(facts, ModelFamily::kGptNeox) &&
                  !is_custom(facts),
              "only models of family gpt2 and gpt-neox have an activation to choose");
}

std::string parallel_residual(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::parallel, "parallel residuals");
}

std::string qkv_bias(const Facts& facts) {
  return when(!is_family(facts, ModelFamily::kLlama) && !is_custom(facts),
              "it is for model.family = \"llama\"");
}

std::string of_scaling(const Facts& facts) {
  return when(facts.options.train.model.rope_scaling == RopeScaling::kNone,
              "with model.rope_scaling = \"none\" nothing is scaled");
}

std::string of_llama3_scaling(const Facts& facts) {
  return when(facts.options.train.model.rope_scaling != RopeScaling::kLlama3,
              "it is for model.rope_scaling = \"llama3\"");
}

std::string of_experts(const Facts& facts) {
  return of_part(facts, &plan::FamilyParts::experts, "experts");
}

std::string gradient_dtype(const Facts& facts) {
  if (parallel_of(facts).reduction == parallel::Reduction::kTree) {
    return "with parallel.reduction = \"tree\" gradients are f32";
  }
  return when(facts.options.train.precision == plan::Precision::kF32,
              "with train.precision = \"f32\" gradients are f32");
}

std::string steps(const Facts& facts) {
  return when(facts.options.epochs > 0,
              fmt::format("train.epochs = {} says how long the run is", facts.options.epochs));
}

std::string trace_steps(const Facts& facts) {
  return when(!facts.options.trace, "it is for train.trace = true");
}

std::string of_live_page(const Facts& facts) {
  return when(facts.options.live.port == 0, "with live.port = 0 there is no live page");
}

std::string of_samples(const Facts& facts) {
  return when(facts.options.sample.every == 0, "with sample.every = 0 there are no samples");
}

std::string slow_factor(const Facts& facts) {
  return when(facts.options.train.slow_rank < 0, "with debug.slow_rank = -1 no rank is slow");
}

// optimizer.*, schedule.*, loss_scale.*

std::string of_adam(const Facts& facts) {
  return when(facts.options.train.optimizer.kind == optim::OptimizerKind::kSgd,
              "optimizer.kind = \"sgd\" has no moments; it is for adam and adamw");
}

std::string momentum(const Facts& facts) {
  return when(facts.options.train.optimizer.kind != optim::OptimizerKind::kSgd,
              "it is for optimizer.kind = \"sgd\"; Adam has optimizer.beta1");
}

std::string warmup_ratio(const Facts& facts) {
  return when(facts.config.given("schedule.warmup_steps").has_value(),
              "schedule.warmup_steps says how long the warm-up is");
}

std::string of_decay(const Facts& facts) {
  return when(facts.options.train.schedule.decay == optim::LearningRateDecay::kConstant,
              "with schedule.decay = \"constant\" the learning rate does not decay");
}

std::string min_lr_ratio(const Facts& facts) {
  const double minimum = facts.options.train.schedule.min_lr;
  if (minimum > 0) return fmt::format("schedule.min_lr = {} is the minimum", minimum);
  return of_decay(facts);
}

std::string of_f16(const Facts& facts) {
  return when(facts.options.train.precision != plan::Precision::kF16,
              "only train.precision = \"f16\" scales the loss");
}

// parallel.*

std::string of_servers(const Facts& facts) {
  return when(!uses_servers(facts), "it is for parallel.strategy = \"parameter_server\"");
}

std::string staleness(const Facts& facts) {
  if (!uses_servers(facts)) return of_servers(facts);
  return when(parallel_of(facts).server.consistency != parallel::Consistency::kSsp,
              "it is for parallel.consistency = \"ssp\"");
}

std::string check_every(const Facts& facts) {
  return when(
      uses_servers(facts) && parallel_of(facts).server.consistency != parallel::Consistency::kBsp,
      "workers that do not wait for each other hold different parameters");
}

std::string of_reductions(const Facts& facts) {
  return when(uses_servers(facts),
              "parameter servers reduce nothing; it is for parallel.strategy = \"ddp\", as "
              "parallel.schedule is for servers");
}

// For keys that only workers with unsharded states read.
std::string of_whole_states(const Facts& facts) {
  if (uses_servers(facts)) return of_reductions(facts);
  const int zero = parallel_of(facts).zero;
  return when(zero > 0 && has_several_workers(facts) && !stage_is_chosen(facts),
              fmt::format("with parallel.zero = {} gradients are reduced block by block and each "
                          "worker updates its part; it is for 0",
                          zero));
}

std::string partition(const Facts& facts) {
  if (!has_several_workers(facts) || stage_is_chosen(facts)) return "";
  return when(parallel_of(facts).zero == 0,
              "with parallel.zero = 0 nothing is sharded; it is for 1, 2 and 3");
}

std::string no_sync(const Facts& facts) {
  if (!has_several_workers(facts) || stage_is_chosen(facts)) return "";
  const TrainOptions& options = facts.options.train;
  const int zero = options.parallel.zero;
  if (zero < 2) {
    return fmt::format("with parallel.zero = {} gradients are not sharded; it is for 2 and 3",
                       zero);
  }
  if (solved(options.batch).accumulation == 1) return "a worker has one micro-batch a step";
  return when(options.parallel.reduction == parallel::Reduction::kTree,
              "parallel.reduction = \"tree\" keeps whole gradients anyway");
}

std::vector<nn::Gather> gathers_with(TrainOptions options, int most, const Ops& ops) {
  options.parallel.max_unsharded_blocks = most;
  return plan_run(options, ops, 0, nn::Places::kNone).gathers;
}

std::string max_unsharded_blocks(const Facts& facts) {
  const TrainOptions& options = facts.options.train;
  const bool may_gather = has_several_workers(facts) || options.offload.tiers.any();
  if (!may_gather || options.memory_auto) return "";
  const int most = options.parallel.max_unsharded_blocks;
  const std::vector<nn::Gather> gathers = gathers_with(options, most, facts.ops);
  if (gathers.empty()) {
    return "no parameters are gathered; it applies to parallel.zero = 3 and offload.parameters";
  }
  for (int fewer = 1; fewer < most; ++fewer) {
    if (gathers_with(options, fewer, facts.ops) != gathers) continue;
    return fmt::format("blocks are gathered one step ahead, so at most {} are there at once",
                       fewer);
  }
  return "";
}

// For keys of ZeRO++ that act between nodes. A wrong stage is refused elsewhere.
std::string between_nodes(const Facts& facts) {
  return when(has_several_workers(facts) && parallel_of(facts).machines == 1,
              "all workers are on one node, and it is about what nodes send each other");
}

std::string compression_ratio(const Facts& facts) {
  const auto kind = parallel_of(facts).compression.compression;
  return when(kind != parallel::Compression::kTopk && kind != parallel::Compression::kRandomk,
              "it is for parallel.compression = \"topk\" and \"randomk\"");
}

std::string mirror(const Facts& facts) {
  if (!has_several_workers(facts) || stage_is_chosen(facts)) return "";
  return cannot_mirror(facts.options.train, facts.ops.device());
}

std::string evict_slow(const Facts& facts) {
  if (!has_several_workers(facts)) return "one worker delays nobody";
  return cannot_evict(parallel_of(facts));
}

// offload.*

std::string of_files(const Facts& facts) {
  return when(!facts.options.train.offload.tiers.has_files(),
              "nothing lies in files; it is for offload.* = \"file\"");
}

std::string offload_overlap(const Facts& facts) {
  const TrainOptions& options = facts.options.train;
  const bool updates_early = options.offload.tiers.update() == Tier::kHost &&
                             options.optimizer.max_grad_norm == 0 &&
                             options.precision != plan::Precision::kF16;
  return updates_early ? "" : of_files(facts);
}

// comm.*

std::string of_native(const Facts& facts) {
  return when(facts.options.comm.backend == Backend::kMpi,
              "with comm.backend = \"mpi\" MPI moves the data as it likes");
}

std::string of_processes(const Facts& facts) {
  return facts.options.comm.backend == Backend::kThreads
             ? "ranks that are threads of one process share its memory"
             : of_native(facts);
}

std::string comm_check(const Facts& facts) {
  return when(facts.options.comm.backend != Backend::kMpi,
              "only comm.backend = \"mpi\" can leave the comparison out");
}

std::string comm_trusted_network(const Facts& facts) {
  return facts.options.comm.encrypt == EncryptChoice::kAuto
             ? of_processes(facts)
             : "only comm.encrypt = \"auto\" asks whether the network is trusted";
}

std::string of_gpu_ranks(const Facts& facts) {
  if (facts.ops.device() == Device{}) return "this run computes on the CPU";
  return when(!has_several_workers(facts), "one worker shares and exchanges nothing");
}

std::string scatter_algorithm(const Facts&) { return "training scatters nothing"; }

std::string reduce_algorithm(const Facts& facts) {
  const parallel::ParallelOptions& options = parallel_of(facts);
  const bool reduces = options.zero > 0 && options.partition == nn::Partition::kLayer;
  if (reduces || stage_is_chosen(facts)) return of_native(facts);
  return "training reduces to one worker only with parallel.zero and parallel.partition = "
         "\"layer\"";
}

std::string reduce_scatter_algorithm(const Facts& facts) {
  const parallel::ParallelOptions& options = parallel_of(facts);
  const bool scatters = options.zero > 0 && options.partition == nn::Partition::kTensor;
  if (scatters || stage_is_chosen(facts)) return of_native(facts);
  return "training reduce-scatters only with parallel.zero and parallel.partition = \"tensor\"";
}

std::string all_reduce_algorithm_of_comm(const Facts& facts) {
  const parallel::ParallelOptions& options = parallel_of(facts);
  if (uses_servers(facts)) return "parameter servers reduce nothing";
  if (options.algorithm != kAutoAlgorithm) {
    return fmt::format("parallel.algorithm = \"{}\" is what gradients are reduced with",
                       options.algorithm);
  }
  if (stage_is_chosen(facts)) return of_native(facts);
  if (options.zero > 0 && has_several_workers(facts)) {
    return fmt::format("parallel.zero = {} does without all-reduce", options.zero);
  }
  return of_native(facts);
}

std::string all_to_all_algorithm(const Facts& facts) {
  const parallel::ParallelOptions& options = parallel_of(facts);
  if (options.compression.compression == parallel::Compression::kNone &&
      options.quantized_gradients == parallel::Quantization::kNone) {
    return "training exchanges all with all only where gradients are compressed "
           "(parallel.compression, parallel.quantized_gradients)";
  }
  return of_native(facts);
}

std::string of_pipelines(const Facts& facts) {
  return when(parallel_of(facts).pipeline == 1, "parallel.pipeline = 1 makes one stage");
}

std::string of_context_groups(const Facts& facts) {
  return when(parallel_of(facts).context == 1, "parallel.context = 1 divides no sequences");
}

std::string pipeline_chunks(const Facts& facts) {
  if (std::string why = of_pipelines(facts); !why.empty()) return why;
  return when(parallel_of(facts).pipeline_schedule != "interleaved",
              "only parallel.pipeline_schedule = \"interleaved\" has several chunks per stage");
}

std::string pipeline_slices(const Facts& facts) {
  return when(!parallel::slices_tokens(parallel_of(facts)),
              "only a pipeline with parallel.pipeline_schedule = \"terapipe\" has slices");
}

constexpr SettingRule kRules[] = {
    {"data.field", field},
    {"data.tokenizer", tokenizer},
    {"data.bpe_vocabulary", bpe_vocabulary},
    {"data.validation_fraction", validation_fraction},
    {"data.mask_fraction", mask_fraction},
    {"model.family", family},
    {"model.layers", of_transformers},
    {"model.hidden", of_transformers},
    {"model.heads", of_transformers},
    {"model.kv_heads", of_single_stacks},
    {"model.feed_forward", of_transformers},
    {"model.vocabulary", of_transformers},
    {"model.positions", of_transformers},
    {"model.features", features},
    {"model.norm_epsilon", of_transformers},
    {"model.head_size", head_size},
    {"model.qkv_bias", qkv_bias},
    {"model.rotary_share", rotary_share},
    {"model.window", window},
    {"model.unwindowed_layers", unwindowed_layers},
    {"model.activation", activation},
    {"model.parallel_residual", parallel_residual},
    {"model.rope_theta", of_rotary},
    {"model.rope_scaling", of_rotary},
    {"model.rope_factor", of_scaling},
    {"model.rope_original_positions", of_llama3_scaling},
    {"model.rope_low_freq_factor", of_llama3_scaling},
    {"model.rope_high_freq_factor", of_llama3_scaling},
    {"model.experts", of_experts},
    {"model.experts_per_token", of_experts},
    {"model.router_loss", of_experts},
    {"model.dropout", of_transformers},
    {"model.tie_word_embeddings", of_single_stacks},
    {"train.seq_len", of_transformers},
    {"train.gradient_dtype", gradient_dtype},
    {"train.expert_capacity", of_experts},
    {"train.steps", steps},
    {"train.validate_every", without_validation},
    {"train.validate_batches", without_validation},
    {"train.early_stopping", without_validation},
    {"train.early_stopping_delta", early_stopping_delta},
    {"checkpoint.keep_best", without_validation},
    {"train.trace_steps", trace_steps},
    {"sample.tokens", of_samples},
    {"sample.temperature", of_samples},
    {"sample.prompt", of_samples},
    {"live.address", of_live_page},
    {"live.token_file", of_live_page},
    {"debug.slow_factor", slow_factor},
    {"optimizer.beta1", of_adam},
    {"optimizer.beta2", of_adam},
    {"optimizer.epsilon", of_adam},
    {"optimizer.momentum", momentum},
    {"schedule.warmup_ratio", warmup_ratio},
    {"schedule.stable_steps", of_decay},
    {"schedule.decay_steps", of_decay},
    {"schedule.min_lr_ratio", min_lr_ratio},
    {"schedule.min_lr", of_decay},
    {"loss_scale.initial", of_f16},
    {"loss_scale.growth_interval", of_f16},
    {"loss_scale.min", of_f16},
    {"parallel.bucket_mb", of_whole_states},
    {"parallel.first_bucket_mb", of_whole_states},
    {"parallel.algorithm", of_reductions},
    {"parallel.overlap", of_reductions},
    {"parallel.partition", partition},
    {"parallel.no_sync", no_sync},
    {"parallel.max_unsharded_blocks", max_unsharded_blocks},
    {"parallel.secondary_partition", between_nodes},
    {"parallel.quantized_gradients", between_nodes},
    {"parallel.compression_ratio", compression_ratio},
    {"parallel.servers", of_servers},
    {"parallel.server_placement", of_servers},
    {"parallel.server_threads", of_servers},
    {"parallel.consistency", of_servers},
    {"parallel.staleness", staleness},
    {"parallel.schedule", of_servers},
    {"parallel.pipeline_schedule", of_pipelines},
    {"parallel.pipeline_chunks", pipeline_chunks},
    {"parallel.pipeline_slices", pipeline_slices},
    {"parallel.context_attention", of_context_groups},
    {"parallel.slice_mb", of_servers},
    {"parallel.credit_mb", of_servers},
    {"parallel.check_every", check_every},
    {"survive.mirror", mirror},
    {"survive.evict_slow", evict_slow},
    {"offload.folder", of_files},
    {"offload.overlap", offload_overlap},
    {"offload.bandwidth", of_files},
    {"comm.transport", of_processes},
    {"comm.algorithm.broadcast", of_native},
    {"comm.algorithm.scatter", scatter_algorithm},
    {"comm.algorithm.gather", of_native},
    {"comm.algorithm.reduce", reduce_algorithm},
    {"comm.algorithm.all_reduce", all_reduce_algorithm_of_comm},
    {"comm.algorithm.all_gather", of_native},
    {"comm.algorithm.reduce_scatter", reduce_scatter_algorithm},
    {"comm.algorithm.all_to_all", all_to_all_algorithm},
    {"comm.grid", of_native},
    {"comm.window", of_native},
    {"comm.cache_dir", of_native},
    {"comm.measure", of_native},
    {"comm.interface", of_processes},
    {"comm.check", comm_check},
    {"comm.emulate", of_native},
    {"comm.emulated_nodes", of_native},
    {"comm.verify", of_native},
    {"comm.encrypt", of_processes},
    {"comm.trusted_network", comm_trusted_network},
    {"comm.device_backend", of_gpu_ranks},
    {"device.share", of_gpu_ranks},
};

}  // namespace
}  // namespace rules

std::span<const SettingRule> setting_rules() { return rules::kRules; }

}  // namespace lockstep::train
