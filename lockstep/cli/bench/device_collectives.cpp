// lockstep bench device-collectives: ranks that exchange data in the memory of GPUs.
#include <fmt/format.h>

#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/device_collectives/device_collectives.h"
#include "lockstep/cli/bench/bench.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/launch/make_world.h"
#include "lockstep/launch/world.h"

namespace lockstep::cli {
namespace {

constexpr const char* kBenchDeviceExamples =
    R"(Ranks are threads of this process; under `lockstep launch` they are processes. Calls are queued
on a stream one after the other, so the time of a call is that from stream to stream.

Examples:
  lockstep bench device-collectives --ranks 2 --sizes 8,64Ki,64Mi
  lockstep launch -n 4 -- lockstep bench device-collectives --sizes 64Mi
  lockstep bench device-collectives --op all_gather,reduce_scatter
  LOCKSTEP_COMM_DEVICE_BACKEND=nccl lockstep launch -n 2 -- lockstep bench device-collectives

touched   bytes that all ranks read and write in a call of the native backend, per second; ranks
          that share a GPU share its memory's bandwidth, which the copy beside it measures)";

struct BenchDeviceFlags {
  std::string ops = "all_reduce";
  std::string sizes = "8,64Ki,1Mi,64Mi";
  std::string device = "cuda:0";
  int ranks = 2;
  int turns = 15;
};

bench::DeviceCollectives make_device_bench(const BenchDeviceFlags& flags) {
  bench::DeviceCollectives bench{.device = parse_device(flags.device), .turns = flags.turns};
  bench.ops.clear();
  for (const std::string_view word : split_text(flags.ops, ',')) {
    const auto op = collective_from_name(word);
    const bool is_timed = op && (*op == Collective::kAllReduce || *op == Collective::kAllGather ||
                                 *op == Collective::kReduceScatter ||
                                 *op == Collective::kAllToAll || *op == Collective::kBroadcast);
    if (!is_timed) {
      fail(ErrorCode::kInvalidArgument,
           "--op is '{}'; use all_reduce, all_gather, reduce_scatter, all_to_all or broadcast",
           word);
    }
    bench.ops.push_back(*op);
  }
  for (const std::string_view word : split_text(flags.sizes, ',')) {
    bench.sizes.push_back(parse_bytes(std::string(word)));
  }
  return bench;
}

void print(const bench::DeviceReport& report, int ranks, bool are_threads) {
  fmt::print("{} ranks, {}; copies on this GPU: {:.2f} TB/s read and written\n\n", ranks,
             are_threads ? "threads" : "processes", report.copy_rate / 1e12);
  TextTable table("lrlrrr");
  table.row({"operation", "bytes", "algorithm", "time", "touched", "of a copy"});
  for (const bench::DeviceTiming& timing : report.timings) {
    const double rate = timing.touched_bytes / timing.seconds;
    table.row({std::string(name(timing.op)), std::to_string(timing.bytes), timing.algorithm,
               fmt::format("{:.1f} us", timing.seconds * 1e6),
               fmt::format("{:.2f} TB/s", rate / 1e12),
               fmt::format("{:.0f} %", 100 * rate / report.copy_rate)});
  }
  fmt::print("{}", table.text());
}

int bench_device(const BenchDeviceFlags& flags) {
  const bench::DeviceCollectives bench = make_device_bench(flags);
  const World world = find_world({});
  if (world.size > 1) {
    const auto ranks = make_world(world, comm_options());
    const bench::DeviceReport report = time_device_collectives(bench, *ranks);
    if (ranks->rank() == 0) print(report, ranks->size(), false);
    return 0;
  }
  run_threads(flags.ranks, [&](Communicator& ranks) {
    const bench::DeviceReport report = time_device_collectives(bench, ranks);
    if (ranks.rank() == 0) print(report, ranks.size(), true);
  });
  return 0;
}

}  // namespace

void add_bench_device_collectives(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<BenchDeviceFlags>();
  CLI::App* command = bench.add_subcommand(
      "device-collectives", "Time collectives in the memory of GPUs, from stream to stream");
  command->footer(kBenchDeviceExamples);
  command->add_option("--op", flags->ops, "operations")->type_name("NAMES")->capture_default_str();
  command->add_option("--sizes", flags->sizes, "bytes per rank")
      ->type_name("LIST")
      ->capture_default_str();
  command->add_option("--device", flags->device, "the GPU")
      ->type_name("DEVICE")
      ->capture_default_str();
  command->add_option("--ranks", flags->ranks, "threads of this process")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command->add_option("--turns", flags->turns, "of which the median counts")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->callback([flags, &exit_code] { exit_code = bench_device(*flags); });
}

}  // namespace lockstep::cli
