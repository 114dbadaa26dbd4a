// lockstep bench train: tokens per second and memory of training, beside PyTorch.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/bench/train/bench_train.h"
#include "lockstep/bench/train/worker.h"
#include "lockstep/cli/bench/bench.h"
#include "lockstep/cli/bench/peers.h"

namespace lockstep::cli {
namespace {

constexpr const char* kTrainExamples =
    R"(Trains on synthetic tokens: forward, backward, clipping and AdamW. With --peers also PyTorch,
eager and compiled, by turns in one run, each in a process of its own.

Examples:
  lockstep bench train --model gpt2-124m --batch 4 --seq 1024 --precision bf16 --peers
  lockstep bench train --model gpt2-124m --precision f32 --steps 10 --json out.json
  lockstep bench train --model gpt2-124m --batch 1 --steps 1 --profile
  lockstep bench train --model gpt2-124m --batch 64 --device cuda --peers
  lockstep bench train --set model.layers=2 --set model.hidden=256 --set model.heads=4 --batch 2
  lockstep bench train --set model.family=encoder-decoder --batch 16 --seq 128

tokens/s     from the median of the timed steps
peak         the most memory that the process had in RAM at once during them; on a GPU, there
step FLOP/s  the model's matrix products, without what is recomputed, per second of a whole step;
             attention's as usual by whole squares, of which causal models do half
GEMM FLOP/s  those of the linear layers alone, measured in the same run by the same library
share        the first of the two by the second

PyTorch is looked for in --python, LOCKSTEP_PYTHON, build/peers (./dev peers) and python3.)";

constexpr int kMostOfAStep = 1 << 20;
constexpr int kMostThreads = 4096;

struct TrainFlags {
  std::string model;
  int batch = 4;
  int sequence = 0;
  std::string precision = "bf16";
  std::string recompute{train::name(train::TrainOptions{}.recompute)};
  int steps = 5;
  int threads = 0;
  std::string device = "cpu";
  bool profile = false;
  std::vector<std::string> modes;
  PeerFlags peers;
  std::vector<std::string> settings;
};

void read(train::TrainOptions& options, const std::vector<std::string>& settings) {
  Config config;
  train::bind(config, options);
  for (const std::string& setting : settings) config.set(setting);
  // Synthetic tokens have a usual vocabulary size.
  if (train::family_of(options) == train::ModelFamily::kEncoderDecoder &&
      options.model.vocabulary == 0) {
    options.model.vocabulary = static_cast<int>(plan::usual_encoder_decoder().vocabulary);
  }
  check_bench_options(options);
}

bench::TrainBench make_bench(const TrainFlags& flags) {
  bench::TrainBench bench;
  bench.settings = {fmt::format("train.micro_batch_size={}", flags.batch),
                    fmt::format("train.seq_len={}", flags.sequence),
                    fmt::format("train.precision={}", flags.precision),
                    fmt::format("train.recompute={}", flags.recompute),
                    fmt::format("train.threads={}", flags.threads),
                    fmt::format("run.device={}", flags.device)};
  if (!flags.model.empty()) bench.settings.push_back(fmt::format("model.name={}", flags.model));
  bench.settings.insert(bench.settings.end(), flags.settings.begin(), flags.settings.end());
  read(bench.options, bench.settings);
  bench.steps = flags.steps;
  bench.profile = flags.profile;
  bench.modes = flags.modes;
  set_peers(flags.peers, bench);
  return bench;
}

}  // namespace

void add_bench_train(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = bench.add_subcommand("train", "Time steps of training, beside PyTorch");
  command->footer(kTrainExamples);
  command->add_option("--model", flags->model, "a model by name, like gpt2-124m");
  command->add_option("--batch", flags->batch, "sequences of a step")
      ->check(CLI::Range(1, kMostOfAStep))
      ->capture_default_str();
  command->add_option("--seq", flags->sequence, "tokens of a sequence (as many as the model has)")
      ->check(CLI::Range(1, kMostOfAStep));
  command->add_option("--precision", flags->precision, "bf16, f16, f32 or fp8")
      ->capture_default_str();
  command->add_option("--recompute", flags->recompute, "none, selective, full or auto")
      ->capture_default_str();
  command->add_option("--steps", flags->steps, "timed steps of each implementation")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "of each implementation (all allowed cores)")
      ->check(CLI::Range(1, kMostThreads));
  command->add_option("--device", flags->device, "cpu, cuda, cuda:1, or auto")
      ->capture_default_str();
  command->add_flag("--profile", flags->profile, "one more step of ours, timed by operation");
  add_peer_options(*command, flags->peers, "PyTorch, eager and compiled", "PyTorch");
  command
      ->add_option("--modes", flags->modes,
                   "of PyTorch (all); each holds its memory while the others take their turns")
      ->delimiter(',')
      ->check(CLI::IsMember({"eager", "compile", "reduce-overhead"}));
  command->add_option("--set", flags->settings, "any other setting of a run; may be repeated")
      ->type_name("KEY=VALUE");
  command->callback([flags, &exit_code] {
    exit_code = run_bench([&] { return bench::run_train(make_bench(*flags)); });
  });
}

void add_bench_train_worker(CLI::App& bench, int& exit_code) {
  const auto settings = std::make_shared<std::vector<std::string>>();
  const auto products = std::make_shared<bool>(false);
  CLI::App* command =
      bench.add_subcommand("train-worker", "One side of bench train; started by the bench");
  command->group("");
  command->add_option("settings", *settings, "key=value of a run");
  command->add_flag("--products", *products, "time matrix products instead");
  command->callback([settings, products, &exit_code] {
    train::TrainOptions options;
    read(options, *settings);
    if (*products) {
      bench::serve_products(options);
    } else {
      bench::serve_training(options);
    }
    exit_code = 0;
  });
}

}  // namespace lockstep::cli
