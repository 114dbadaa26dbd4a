// lockstep bench offload: training with states in a file, beside what a formula says of it.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/text/units.h"
#include "lockstep/bench/offload/bench_offload.h"
#include "lockstep/bench/offload/device_bench.h"
#include "lockstep/cli/bench/bench.h"
#include "lockstep/cli/bench/peers.h"
#include "lockstep/cli/text_table.h"

namespace lockstep::cli {
namespace {

constexpr const char* kOffloadExamples =
    R"(Trains a small model on synthetic tokens three times by turns: with all of it on the device, and
with the optimizer's states in a file, or whatever else offload.* keys of --set say, transfers one
after the other with computing, and overlapped.
The second should be as fast as ZeRO-Infinity's formula says, ait bw / (ait bw + peak), with what was
measured in the same run; the third faster. The exit code says whether they are.

On a GPU (--device cuda) states are on the host, the optimizer's if no key says otherwise. The bench
measures the compute of a micro-batch, copies each way and the host's update alone, and compares
real steps with the critical path of these: at most 1.1 times, with a delayed update 1.15 times.

Examples:
  lockstep bench offload
  lockstep bench offload --model gpt2-124m --batch 1 --seq 256 --bandwidth "" --folder /scratch
  lockstep bench offload --set offload.gradients=host --set offload.parameters=host
  lockstep bench offload --set offload.activations=file
  lockstep bench offload --device cuda --model gpt2-1558m --batch 16 --seq 1024 \
      --set train.gradient_accumulation_steps=4)";

struct BenchOffloadFlags {
  std::string model;
  int batch = 4;
  int sequence = 128;
  std::string precision = "bf16";
  std::string bandwidth = "300MB/s";
  std::string folder;
  std::string device = "cpu";
  int steps = 5;
  int threads = 0;
  std::vector<std::string> settings;
};

train::TrainOptions options_of(const BenchOffloadFlags& flags) {
  std::vector<std::string> settings = {fmt::format("train.micro_batch_size={}", flags.batch),
                                       fmt::format("train.seq_len={}", flags.sequence),
                                       fmt::format("train.precision={}", flags.precision),
                                       fmt::format("train.threads={}", flags.threads),
                                       fmt::format("run.device={}", flags.device)};
  if (flags.device == "cpu") {
    settings.insert(settings.end(), {fmt::format("offload.bandwidth={}", flags.bandwidth),
                                     fmt::format("offload.folder={}", flags.folder),
                                     // Else an update waits for all gradients.
                                     "optimizer.max_grad_norm=0"});
  }
  if (flags.model.empty()) {
    settings.insert(settings.end(), {"model.layers=4", "model.hidden=256", "model.heads=4",
                                     "model.vocabulary=8192", "model.positions=1024"});
  } else {
    settings.push_back(fmt::format("model.name={}", flags.model));
  }
  settings.insert(settings.end(), flags.settings.begin(), flags.settings.end());
  train::TrainOptions options;
  Config config;
  train::bind(config, options);
  for (const std::string& setting : settings) config.set(setting);
  check_bench_options(options);
  return options;
}

const char* verdict(bool holds) { return holds ? "yes" : "NO"; }

bool print_offload(const bench::OffloadReport& report) {
  fmt::print("{:.1f} million parameters; {} on the device, {} with what lies in a file\n\n",
             report.parameters / 1e6, format_bytes(report.whole_device_bytes),
             format_bytes(report.device_bytes));
  TextTable table("lrrrrr");
  table.row({"", "step", "tokens/s", "efficiency", "moved a step", "waited a step"});
  for (const bench::OffloadRow& row : report.rows) {
    const bool moves = row.file_bytes > 0;
    table.row({row.name, format_seconds(row.step_seconds),
               fmt::format("{:.0f}", row.tokens_per_second), fmt::format("{:.3f}", row.efficiency),
               moves ? format_bytes(row.file_bytes) : "",
               moves ? format_seconds(row.waited_seconds) : ""});
  }
  fmt::print("{}\n", table.text());
  fmt::print("at {}, ait bw / (ait bw + peak) = {:.3f}\n",
             format_bytes_per_second(report.bandwidth), report.formula);
  fmt::print("one after the other within {:.0f} % of it ({:+.1f} %): {}\n",
             100 * bench::OffloadReport::kTolerance,
             100 * (report.rows[1].efficiency / report.formula - 1),
             verdict(report.is_as_predicted()));
  fmt::print("overlapped above it ({:.3f}): {}\n", report.rows[2].efficiency,
             verdict(report.overlap_wins()));
  std::fflush(stdout);
  return report.is_as_predicted() && report.overlap_wins();
}

bool print_device_offload(const bench::DeviceOffloadReport& report) {
  const bench::StepParts& alone = report.rows.front().parts;
  fmt::print("{:.1f} million parameters, {} micro-batches a step\n\n", report.parameters / 1e6,
             alone.micro_batches);
  TextTable parts("lr");
  parts.row({"alone", ""});
  parts.row({"compute of a micro-batch", format_seconds(alone.compute_seconds)});
  parts.row({"its forward", format_seconds(alone.forward_seconds)});
  parts.row({"the host's update", format_seconds(alone.update_seconds)});
  parts.row({"copies to the host", format_bytes_per_second(alone.down_rate)});
  parts.row({"copies to the GPU", format_bytes_per_second(alone.up_rate)});
  fmt::print("{}\n", parts.text());
  TextTable table("lrrrrrr");
  table.row({"", "step", "tokens/s", "on the GPU", "critical path", "ratio", "bar"});
  for (const bench::DeviceOffloadRow& row : report.rows) {
    table.row({row.name, format_seconds(row.step_seconds),
               fmt::format("{:.0f}", row.tokens_per_second), format_bytes(row.device_bytes),
               format_seconds(bench::critical_path(row.parts)), fmt::format("{:.3f}", row.ratio()),
               fmt::format("{:.2f}", row.bar)});
  }
  fmt::print("{}\nwithin the bars: {}\n", table.text(), verdict(report.holds()));
  std::fflush(stdout);
  return report.holds();
}

bool print_bench(const BenchOffloadFlags& flags) {
  const train::TrainOptions options = options_of(flags);
  if (train::device_of(options) != Device{}) {
    return print_device_offload(
        bench::run_device_offload({.options = options, .steps = flags.steps}));
  }
  return print_offload(bench::run_offload({.options = options, .steps = flags.steps}));
}

}  // namespace

void add_bench_offload(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<BenchOffloadFlags>();
  CLI::App* command =
      bench.add_subcommand("offload", "Time training with states in a file or on the host");
  command->footer(kOffloadExamples);
  command->add_option("--model", flags->model, "a model by name, like gpt2-124m (a small one)");
  command->add_option("--batch", flags->batch, "sequences of a step")->capture_default_str();
  command->add_option("--seq", flags->sequence, "tokens of a sequence")->capture_default_str();
  command->add_option("--precision", flags->precision, "bf16, f16 or f32")->capture_default_str();
  command
      ->add_option("--bandwidth", flags->bandwidth,
                   "that the disk is to have; empty: as fast as it is")
      ->capture_default_str();
  command->add_option("--folder", flags->folder, "on the disk (that of temporary files)");
  command->add_option("--device", flags->device, "cpu, cuda or cuda:1")->capture_default_str();
  command->add_option("--steps", flags->steps, "timed steps of each")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "of computing (all allowed cores)");
  command->add_option("--set", flags->settings, "any other setting of a run; may be repeated")
      ->type_name("KEY=VALUE");
  command->callback(
      [flags, &exit_code] { exit_code = run_bench([&] { return print_bench(*flags); }); });
}

}  // namespace lockstep::cli
