// lockstep bench generate: tokens per second of generating text, beside PyTorch.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/bench/generate/bench_generate.h"
#include "lockstep/cli/bench/bench.h"
#include "lockstep/cli/bench/peers.h"

namespace lockstep::cli {
namespace {

constexpr const char* kGenerateBenchExamples =
    R"(Continues a random prompt with random weights, --batch texts at a time, always with the
most probable token. With --peers also PyTorch, each in a process of its own, by turns: on a CPU a lean loop with
a cache of keys and values, eager and compiled (one text of GPT-2), and transformers' generate(); on
a GPU generate() with a static cache and compiled steps.

Examples:
  lockstep bench generate --model gpt2-124m --precision bf16 --tokens 128 --peers
  lockstep bench generate --model gpt2-124m --prompt 64 --tokens 256 --device cuda --peers
  lockstep bench generate --set model.family=llama --set model.layers=4 --json out.json

tokens/s     new tokens of all texts by the time of prompt and new tokens together; medians
per token    of each text, without the prompt
read         the bytes of all parameters by that time: each token reads them once

PyTorch is looked for in --python, LOCKSTEP_PYTHON, build/peers (./dev peers) and python3.)";

struct GenerateBenchFlags {
  std::string model;
  std::string precision = "bf16";
  std::int64_t batch = 1;
  std::int64_t prompt = 16;
  std::int64_t tokens = 128;
  int rounds = 5;
  int threads = 0;
  std::string device = "cpu";
  PeerFlags peers;
  std::vector<std::string> settings;
};

void read_settings(train::TrainOptions& options, const std::vector<std::string>& settings) {
  Config config;
  train::bind(config, options);
  for (const std::string& setting : settings) config.set(setting);
}

bench::GenerateBench make_generate_bench(const GenerateBenchFlags& flags) {
  bench::GenerateBench bench;
  bench.settings = {fmt::format("train.precision={}", flags.precision),
                    fmt::format("train.threads={}", flags.threads),
                    fmt::format("run.device={}", flags.device)};
  if (!flags.model.empty()) bench.settings.push_back(fmt::format("model.name={}", flags.model));
  bench.settings.insert(bench.settings.end(), flags.settings.begin(), flags.settings.end());
  read_settings(bench.options, bench.settings);
  bench.batch = flags.batch;
  bench.prompt = flags.prompt;
  bench.tokens = flags.tokens;
  bench.rounds = flags.rounds;
  set_peers(flags.peers, bench);
  return bench;
}

}  // namespace

void add_bench_generate(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<GenerateBenchFlags>();
  CLI::App* command =
      bench.add_subcommand("generate", "Time the generation of text, beside PyTorch");
  command->footer(kGenerateBenchExamples);
  command->add_option("--model", flags->model, "a model by name, like gpt2-124m");
  command->add_option("--precision", flags->precision, "bf16, f16 or f32")->capture_default_str();
  command->add_option("--batch", flags->batch, "texts that are written together")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--prompt", flags->prompt, "tokens of the prompt")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command->add_option("--tokens", flags->tokens, "new tokens of a text")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command->add_option("--rounds", flags->rounds, "timed texts of each implementation")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--device", flags->device, "cpu, cuda, cuda:1, or auto")
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "of each implementation (all allowed cores)");
  add_peer_options(*command, flags->peers, "PyTorch", "PyTorch");
  command->add_option("--set", flags->settings, "any other setting of a run; may be repeated")
      ->type_name("KEY=VALUE");
  command->callback([flags, &exit_code] {
    exit_code = run_bench([&] { return bench::run_generate(make_generate_bench(*flags)); });
  });
}

void add_bench_generate_worker(CLI::App& bench, int& exit_code) {
  struct Work {
    std::int64_t batch = 1;
    std::int64_t prompt = 0;
    std::int64_t tokens = 0;
    std::vector<std::string> settings;
  };
  const auto work = std::make_shared<Work>();
  CLI::App* command =
      bench.add_subcommand("generate-worker", "One side of bench generate; started by the bench");
  command->group("");
  command->add_option("--batch", work->batch, "texts");
  command->add_option("--prompt", work->prompt, "tokens of the prompt");
  command->add_option("--tokens", work->tokens, "new tokens");
  command->add_option("settings", work->settings, "key=value of a run");
  command->callback([work, &exit_code] {
    train::TrainOptions options;
    read_settings(options, work->settings);
    bench::serve_generation(options, work->batch, work->prompt, work->tokens);
    exit_code = 0;
  });
}

}  // namespace lockstep::cli
