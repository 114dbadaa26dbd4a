// Which keys of workers and their communication a run reads.
#include <fmt/format.h>

#include "lockstep/train/memory/mirror_memory.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/run/setting_rules.h"

namespace lockstep::train::rules {
namespace {

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
  const parallel::ParallelOptions& mesh = options.parallel;
  const bool is_whole = mesh.tensor == 1 && mesh.pipeline == 1 && mesh.expert == 1;
  const bool updates_early = is_whole && options.offload.tiers.update() == Tier::kHost &&
                             options.optimizer.max_grad_norm == 0 &&
                             options.precision != plan::Precision::kF16;
  const bool overlaps_update =
      options.offload.tiers.optimizer == Tier::kHost && facts.ops.device() != Device{};
  return updates_early || overlaps_update ? "" : of_files(facts);
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

std::string tensor_chunks(const Facts& facts) {
  const parallel::ParallelOptions& options = parallel_of(facts);
  if (options.tensor == 1) return "parallel.tensor = 1 makes no tensor groups";
  if (options.sequence) return "with parallel.sequence = true tokens are divided between products";
  return when(options.device != Device{}, "a GPU sums in the order of its operations");
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

constexpr SettingRule kWorkerRules[] = {
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
    {"parallel.tensor_chunks", tensor_chunks},
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

std::span<const SettingRule> of_workers() { return kWorkerRules; }

}  // namespace lockstep::train::rules
