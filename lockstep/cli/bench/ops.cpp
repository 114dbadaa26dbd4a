#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/ops/bench_ops.h"
#include "lockstep/bench/ops/gpu.h"
#include "lockstep/cli/bench/bench.h"
#include "lockstep/cli/bench/peers.h"

namespace lockstep::cli {
namespace {

constexpr const char* kOpsExamples =
    R"(Shapes are those of GPT-2 124M on 4 x 1024 tokens; optimizers go over all 124M parameters. On a
GPU they are those of GPT-2 on 64 x 1024 tokens and of a Llama of 2048 columns on 4 x 4096; those in
8 bits are of GPT-2 1558M on 16 x 1024, and AdamW goes over 124M and 1.5G parameters.

Examples:
  lockstep bench ops
  lockstep bench ops --op adam --threads 2
  lockstep bench ops --op linear,attention --dtype f32,bf16 --json ops.json
  lockstep bench ops --device cuda --peers

GFLOP/s    of matrix products; causal attention counts what it cannot see as nothing
GB/s       what an operation must read and write, each byte once / median
of floor   the least time that the machine could take / median. The machine could take as long as
           the bytes need to stream through memory, or the products in registers, whichever is
           longer; both rates are measured first, with as many threads

On a GPU calls run in captured batches, and go round between tensors that caches cannot hold.
of ceiling the same, where the machine's rates are those of a copy of 2 GiB on the device and of
           one large product of matrices
bar        what is good: the operation's bytes per second by those of the copy
peer       with --peers: the median of cuDNN's attention through PyTorch, by turns with ours, and
           how many times as fast ours is; 1.0x is good

PyTorch is looked for in --python, LOCKSTEP_PYTHON, build/peers (./dev peers) and python3.)";

struct OpsFlags {
  std::vector<std::string> ops;
  std::string dtypes;
  std::string min_time;
  std::string device = "cpu";
  int threads = 0;
  PeerFlags peers;
};

constexpr const char* kCpuTypes = "f32";
constexpr const char* kGpuTypes = "bf16";

std::vector<bench::OpDescription> parse_operations(const std::vector<std::string>& lists,
                                                   const std::vector<bench::OpDescription>& all) {
  std::vector<std::string_view> known;
  for (const auto& description : all) known.push_back(description.name);
  std::vector<bench::OpDescription> chosen;
  for (const std::string& list : lists) {
    for (const std::string_view word : split_text(list, ',')) {
      if (word == "all") return all;
      const auto found = std::find(known.begin(), known.end(), word);
      if (found == known.end()) {
        fail(ErrorCode::kInvalidArgument, "--op: unknown operation '{}'{}; expected {} or all",
             word, did_you_mean(word, known), fmt::join(known, ", "));
      }
      chosen.push_back(all[static_cast<std::size_t>(found - known.begin())]);
    }
  }
  return chosen.empty() ? all : chosen;
}

std::vector<DType> parse_compute_types(const std::string& text) {
  constexpr DType kComputeTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  std::vector<std::string_view> known;
  for (const DType dtype : kComputeTypes) known.push_back(name(dtype));
  std::vector<DType> dtypes;
  for (const std::string_view word : split_text(text, ',')) {
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      fail(ErrorCode::kInvalidArgument,
           "--dtype: operations do not support '{}'{}; expected one of {}", word,
           did_you_mean(word, known), fmt::join(known, ", "));
    }
    dtypes.push_back(*dtype_from_name(word));
  }
  return dtypes;
}

bench::OpsPlan make_ops_plan(const OpsFlags& flags) {
  if (flags.peers.peers) {
    fail(ErrorCode::kInvalidArgument,
         "--peers: only attention on a GPU has a peer; add --device cuda");
  }
  bench::OpsPlan plan{
      .ops = parse_operations(flags.ops, bench::op_descriptions()),
      .dtypes = parse_compute_types(flags.dtypes.empty() ? kCpuTypes : flags.dtypes),
      .threads = flags.threads,
      .json = flags.peers.json};
  if (plan.threads == 0) plan.threads = CpuSet::of_this_thread().count();
  if (!flags.min_time.empty()) plan.seconds = parse_seconds(flags.min_time);
  return plan;
}

bench::GpuOpsPlan make_gpu_plan(const OpsFlags& flags, Device device) {
  if (flags.threads != 0) {
    fail(ErrorCode::kInvalidArgument, "--threads has no meaning on a GPU; leave it out");
  }
  bench::GpuOpsPlan plan;
  plan.device = device;
  plan.ops = parse_operations(flags.ops, bench::op_descriptions());
  plan.dtypes = parse_compute_types(flags.dtypes.empty() ? kGpuTypes : flags.dtypes);
  if (!flags.min_time.empty()) plan.seconds = parse_seconds(flags.min_time);
  set_peers(flags.peers, plan);
  return plan;
}

bool run_ops_bench(const OpsFlags& flags) {
  const Device device = parse_device(flags.device);
  if (device.kind == DeviceKind::kCpu) return bench::run_ops(make_ops_plan(flags));
  return bench::run_ops_on_gpu(make_gpu_plan(flags, device));
}

}  // namespace

void add_bench_ops(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<OpsFlags>();
  CLI::App* command =
      bench.add_subcommand("ops", "Time operations, beside what the machine can do at best");
  command->footer(kOpsExamples);
  command->add_option("--op", flags->ops, "operations, or a list of them; all where none is named")
      ->type_name("NAME");
  command->add_option("--dtype", flags->dtypes, "f32, bf16, f16, or a list (f32; on a GPU bf16)");
  command->add_option("--device", flags->device, "cpu, cuda, or cuda:1")->capture_default_str();
  command->add_option("--threads", flags->threads, "threads to compute with (all CPUs)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->add_option("--min-time", flags->min_time, "time for each operation and type (500ms)")
      ->type_name("TIME");
  add_peer_options(*command, flags->peers, "cuDNN's attention through PyTorch, on a GPU",
                   "PyTorch");
  command->callback(
      [flags, &exit_code] { exit_code = run_bench([&] { return run_ops_bench(*flags); }); });
}

}  // namespace lockstep::cli
