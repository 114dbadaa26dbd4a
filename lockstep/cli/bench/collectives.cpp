#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/collectives/collectives.h"
#include "lockstep/cli/bench/bench.h"
#include "lockstep/cli/number_lists.h"

namespace lockstep::cli {
namespace {

constexpr const char* kCollectivesExamples =
    R"(Runs this library in symmetric memory, in private memory and over TCP, and with --peers each
installed peer (Gloo, Open MPI, MPICH), interleaved in one run. Every result is checked.

Examples:
  lockstep bench collectives --peers
  lockstep bench collectives --op all_reduce --ranks 2 --sizes 8..128Mi --peers --json out.json
  lockstep bench collectives --op all --ranks 2,4 --peers --quick
  lockstep bench collectives --sizes 64Ki,1Mi --algorithm ring,tree
  lockstep bench collectives --only lockstep-tcp,gloo-ring --peers

size       bytes per rank: the vector of all_reduce and broadcast, the whole output of all_gather,
           the whole input of reduce_scatter and all_to_all
median     of the slowest rank's time per call, over all turns; p10 and p90 beside it
algorithm bw  size / median
bus bw     algorithm bw x 2(N-1)/N for all_reduce, (N-1)/N for all_gather, reduce_scatter and
           all_to_all, 1 for broadcast
speed-up   the fastest peer's median / this median: above 1 is faster than every peer)";

struct BenchFlags {
  std::string ops = "all_reduce";
  std::string ranks = "2";
  std::string sizes = "8..128Mi";
  std::string dtypes = "f32";
  std::string only;
  std::string min_time;
  std::string deadline;
  std::string json;
  std::string peers_folder;
  std::vector<std::string> algorithms;
  int root = 0;
  int turns = 0;
  bool peers = false;
  bool quick = false;
};

std::vector<Collective> parse_ops(const std::string& text) {
  if (text == "all") return {std::begin(bench::kBenchOps), std::end(bench::kBenchOps)};
  std::vector<std::string_view> known;
  for (const Collective op : bench::kBenchOps) known.push_back(name(op));
  std::vector<Collective> ops;
  for (const std::string_view word : split_text(text, ',')) {
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      fail(ErrorCode::kInvalidArgument, "--op: unknown collective '{}'{}; expected {} or all", word,
           did_you_mean(word, known), fmt::join(known, ", "));
    }
    ops.push_back(*collective_from_name(word));
  }
  return ops;
}

std::vector<DType> parse_dtypes(const std::string& text) {
  std::vector<DType> dtypes;
  for (const std::string_view word : split_text(text, ',')) {
    const auto dtype = dtype_from_name(word);
    if (!dtype) {
      std::vector<std::string_view> known;
      for (const DType one : kAllDTypes) known.push_back(name(one));
      fail(ErrorCode::kInvalidArgument, "--dtype: unknown type '{}'{}; expected one of {}", word,
           did_you_mean(word, known), fmt::join(known, ", "));
    }
    dtypes.push_back(*dtype);
  }
  return dtypes;
}

std::vector<std::size_t> parse_sizes(const std::string& text) {
  std::vector<std::size_t> sizes = parse_byte_range(text, kSizeFactor);
  if (std::find(sizes.begin(), sizes.end(), std::size_t{0}) != sizes.end()) {
    fail(ErrorCode::kInvalidArgument, "--sizes is '{}'; a size is 1 byte or more, like 8..128Mi",
         text);
  }
  return sizes;
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> list;
  if (text.empty()) return list;
  for (const std::string_view word : split_text(text, ',')) list.emplace_back(word);
  return list;
}

bench::CollectivesPlan make_plan(const BenchFlags& flags) {
  bench::CollectivesPlan plan;
  plan.ops = parse_ops(flags.ops);
  plan.dtypes = parse_dtypes(flags.dtypes);
  plan.ranks = parse_ranks(flags.ranks);
  plan.sizes = parse_sizes(flags.sizes);
  plan.root = flags.root;
  plan.peers = flags.peers;
  plan.algorithms = flags.algorithms;
  plan.only = words(flags.only);
  plan.json = flags.json;
  plan.command = std::filesystem::read_symlink("/proc/self/exe");
  plan.peers_folder = flags.peers_folder.empty() ? plan.command.parent_path() / "peers"
                                                 : std::filesystem::absolute(flags.peers_folder);
  if (flags.quick) plan.effort = {.turns = 3, .seconds = 0.06, .fewest_calls = 2};
  if (flags.turns > 0) plan.effort.turns = flags.turns;
  if (!flags.min_time.empty()) plan.effort.seconds = parse_seconds(flags.min_time);
  if (!flags.deadline.empty()) {
    plan.effort.deadline = std::chrono::ceil<std::chrono::seconds>(
        std::chrono::duration<double>(parse_seconds(flags.deadline)));
  }
  for (const int ranks : plan.ranks) {
    if (flags.root < 0 || flags.root >= ranks) {
      fail(ErrorCode::kInvalidArgument, "--root: {} is not one of the ranks 0 to {}", flags.root,
           ranks - 1);
    }
  }
  return plan;
}

}  // namespace

void add_bench_collectives(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* command =
      bench.add_subcommand("collectives", "Time collectives, beside Gloo, Open MPI and MPICH");
  command->footer(kCollectivesExamples);
  command
      ->add_option("--op", flags->ops,
                   "all_reduce, all_gather, reduce_scatter, broadcast, "
                   "all_to_all, a list of them, or all")
      ->capture_default_str();
  command->add_option("--ranks", flags->ranks, "how many ranks; a list runs one after another")
      ->capture_default_str();
  command->add_option("--sizes", flags->sizes, "from..to by factors of 8, or a list, in bytes")
      ->capture_default_str();
  command->add_option("--dtype", flags->dtypes, "f32, f64, f16, bf16, i8, u8, i32, i64, or a list")
      ->capture_default_str();
  command->add_option("--root", flags->root, "the root of broadcast")->capture_default_str();
  command->add_flag("--peers", flags->peers, "also run the peers that are installed");
  command
      ->add_option("--algorithm", flags->algorithms,
                   "also run this library with this algorithm forced, or a list of them")
      ->delimiter(',')
      ->type_name("LIST");
  command->add_option("--only", flags->only, "only these implementations, e.g. lockstep-tcp,mpich")
      ->type_name("LIST");
  command->add_option("--json", flags->json, "write the results as an array of objects")
      ->type_name("FILE");
  command->add_option("--turns", flags->turns, "turns of each implementation at each size (5)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  command
      ->add_option("--min-time", flags->min_time,
                   "time for each implementation at each size, all turns together (300ms)")
      ->type_name("TIME");
  command
      ->add_option("--deadline", flags->deadline,
                   "an implementation that takes longer for a turn is considered hung (60s)")
      ->type_name("TIME");
  command->add_flag("--quick", flags->quick, "a quick measurement: 3 turns in 60ms");
  command
      ->add_option("--peers-folder", flags->peers_folder,
                   "where the peers' workers are (peers beside this program)")
      ->type_name("FOLDER");
  command->callback([flags, &exit_code] {
    try {
      exit_code = bench::run_collectives(make_plan(*flags)) ? 0 : 1;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kAborted) throw;
      fmt::print(stderr, "lockstep: {}\n", error.what());
      exit_code = kInterrupted;
    }
  });
}

}  // namespace lockstep::cli
