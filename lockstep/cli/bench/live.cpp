// lockstep bench live: what the live page costs, how far it is behind, how fast it shows a long
// run.
#include <memory>
#include <string>

#include "lockstep/bench/live/bench_live.h"
#include "lockstep/cli/bench/bench.h"
#include "lockstep/cli/bench/peers.h"

namespace lockstep::cli {
namespace {

constexpr const char* kBenchLiveExamples =
    R"(load: makes a run of a million steps in a temporary folder, and times `lockstep watch` from its
start until a reader of the page has all of it. train: a job of small ranks trains; windows with and
without a page and its reader take turns. The exit code says whether the bars are met: 2 s to load,
at most 2 s behind, at most 1 % slower.

Examples:
  lockstep bench live
  lockstep bench live --case train --windows 32 --set model.hidden=64 --json live.json)";

}  // namespace

void add_bench_live(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<bench::LiveBench>();
  const auto json = std::make_shared<std::string>();
  CLI::App* command =
      bench.add_subcommand("live", "Measure the live page: its cost, its delay, its loading");
  command->footer(kBenchLiveExamples);
  command->add_option("--case", flags->cases, "load, train or both")
      ->delimiter(',')
      ->check(CLI::IsMember({"load", "train"}))
      ->capture_default_str();
  command->add_option("--steps", flags->steps, "of the long run")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  command->add_option("--loads", flags->loads, "how often it is loaded")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--ranks", flags->ranks, "of the job")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--windows", flags->windows, "of training, with and without the page")
      ->check(CLI::Range(4, 10000))
      ->capture_default_str();
  command->add_option("--seconds", flags->seconds, "of a window")->capture_default_str();
  command->add_option("--set", flags->settings, "settings of the job")->type_name("key=value");
  command->add_option("--json", *json, "write the results there")->type_name("FILE");
  command->callback([flags, json, &exit_code] {
    flags->json = *json;
    flags->command = this_program();
    flags->windows = flags->windows / 4 * 4;
    exit_code = run_bench([&] { return bench::run_live(*flags); });
  });
}

}  // namespace lockstep::cli
