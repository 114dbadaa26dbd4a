#include "lockstep/bench/train/bench_train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/statistics.h"
#include "lockstep/bench/train/helper.h"
#include "lockstep/bench/train/peer_environment.h"
#include "lockstep/bench/train/python.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/memory/run_plan.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;

// A step of a large model in f16 on few cores takes minutes, and so does compiling one.
constexpr std::chrono::hours kStepTimeout{1};
constexpr std::chrono::minutes kStartTimeout{5};
constexpr int kWarmUpSteps = 2;  // the first of a compiled model compiles, the second settles

void print_now(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

// Shows progress, only on a terminal.
void tell(const std::string& text) {
  if (::isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
}

// Prints a line that stays, also in a file.
void tell_done(const std::string& text) {
  tell("");
  fmt::print(stderr, "lockstep: {}\n", text);
  std::fflush(stderr);
}

bool on_gpu(const TrainBench& bench) {
  return train::device_of(bench.options).kind == DeviceKind::kCuda;
}

Program our_program(const TrainBench& bench, bool products) {
  Program program{{bench.command.string(), "bench", "train-worker"}, {}};
  if (products) program.arguments.emplace_back("--products");
  for (const std::string& setting : bench.settings) program.arguments.push_back(setting);
  return program;
}

Program pytorch_program(const TrainBench& bench, const std::string& python, const TrainWork& work,
                        std::string_view mode) {
  const plan::ModelShape shape = train::shape_of(bench.options);
  return {{python,           (bench.peers_folder / "train_pytorch.py").string(),
           "--mode",         std::string(mode),
           "--family",       std::string(plan::name(shape.family)),
           "--tied",         shape.head == plan::Head::kTied ? "1" : "0",
           "--precision",    work.precision,
           "--batch",        std::to_string(work.batch),
           "--sequence",     std::to_string(work.sequence),
           "--threads",      std::to_string(work.threads),
           "--layers",       std::to_string(shape.layers),
           "--hidden",       std::to_string(shape.hidden),
           "--heads",        std::to_string(shape.heads),
           "--kv-heads",     std::to_string(shape.kv_heads),
           "--feed-forward", std::to_string(shape.feed_forward),
           "--vocabulary",   std::to_string(shape.vocabulary),
           "--positions",    std::to_string(shape.positions),
           "--device",       on_gpu(bench) ? "cuda" : "cpu"},
          peer_environment(work.threads)};
}

// Why PyTorch cannot do the same work; empty: it can.
std::string not_for_peers(const TrainBench& bench) {
  const plan::ModelShape shape = train::formula_shape_of(bench.options);
  const bool is_gpt2 = !shape.is_encoder_decoder() && shape.family == plan::Family::kGpt2 &&
                       shape.head == plan::Head::kTied && shape.biases &&
                       bench.options.model.activation == train::ActivationChoice::kAuto;
  const bool is_llama = shape.family == plan::Family::kLlama && !shape.biases && shape.window == 0;
  if (!is_gpt2 && !is_llama) {
    return "the peers train models of the families gpt2 (tied, with biases, GELU by tanh) and "
           "llama "
           "(without a window)";
  }
  if (train::solved(bench.options.batch).accumulation != 1)
    return "the peers take one micro-batch a step";
  if (bench.options.model.dropout != 0) return "the peers have no dropout";
  if (bench.options.precision == plan::Precision::kFp8) return "the peers do not train in FP8";
  return "";
}

// One implementation at work.
class Contender {
 public:
  Contender(std::string name, const Program& program, const Interrupt& interrupt)
      : helper_(std::move(name), program, interrupt, deadline_in(kStartTimeout)) {
    result_.implementation = helper_.name();
    const auto greeting = Json::parse(helper_.greeting(), nullptr, false);
    if (greeting.is_object()) result_.version = greeting.value("version", "");
  }

  void warm_up() {
    for (int i = 0; i < kWarmUpSteps; ++i) {
      tell(fmt::format("{}: warm-up step {} of {}", helper_.name(), i + 1, kWarmUpSteps));
      const auto answer = ask("step");
      if (!answer) return;
      if (i == 0) result_.first_loss = answer->value("loss", std::nan(""));
      tell_done(fmt::format("{}: warm-up step {} of {} took {}", helper_.name(), i + 1,
                            kWarmUpSteps, format_seconds(answer->value("seconds", 0.0))));
    }
    ask("reset");
  }

  void step(int number, int count) {
    tell(fmt::format("{}: step {} of {}", helper_.name(), number, count));
    const auto answer = ask("step");
    if (!answer) return;
    result_.seconds.push_back(answer->value("seconds", 0.0));
    result_.last_loss = answer->value("loss", std::nan(""));
    tell_done(fmt::format("{}: step {} of {} took {}", helper_.name(), number, count,
                          format_seconds(result_.seconds.back())));
  }

  // After the last step; products would count as its memory.
  void finish(bool products) {
    if (const auto answer = ask("usage")) {
      result_.peak_bytes = answer->value("peak_bytes", std::size_t{0});
    }
    if (products) {
      if (const auto answer = ask("gemm")) {
        result_.gemm_flops = answer->value("flops_per_second", 0.0);
      }
    }
  }

  void profile() {
    const auto answer = ask("profile");
    if (!answer || !answer->contains("operations")) return;
    result_.profile.seconds = answer->value("seconds", 0.0);
    for (const Json& one : answer->at("operations")) {
      result_.profile.operations.push_back({.operation = one.value("operation", ""),
                                            .calls = one.value("calls", std::int64_t{0}),
                                            .seconds = one.value("seconds", 0.0),
                                            .flops = one.value("flops", 0.0)});
    }
  }

  double products() {
    const auto answer = ask("gemm");
    return answer ? answer->value("flops_per_second", 0.0) : 0;
  }

  // So far.
  TrainResult result() const {
    TrainResult result = result_;
    result.problem = helper_.failure();
    if (!result.problem.empty()) result.seconds.clear();
    std::sort(result.seconds.begin(), result.seconds.end());
    return result;
  }
  const std::string& failure() const { return helper_.failure(); }

 private:
  std::optional<Json> ask(std::string_view request) {
    const auto line = helper_.ask(request, deadline_in(kStepTimeout));
    if (!line) return std::nullopt;
    return Json::parse(*line, nullptr, false);
  }

  Helper helper_;
  TrainResult result_;
};

using Contenders = std::vector<std::unique_ptr<Contender>>;

void add_peers(const TrainBench& bench, const TrainWork& work, const Interrupt& interrupt,
               Contenders& contenders) {
  std::string problem = not_for_peers(bench);
  Python python;
  if (problem.empty()) {
    tell("looking for a Python with PyTorch");
    python = find_python(bench.python, bench.command);
    problem = python.problem;
  }
  if (!problem.empty()) {
    tell("");
    print_now(fmt::format("left out: PyTorch: {}\n", problem));
    return;
  }
  std::vector<std::string> modes = bench.modes;
  if (modes.empty()) modes = {"eager", "compile"};
  if (bench.modes.empty() && on_gpu(bench)) modes.emplace_back("reduce-overhead");
  for (const std::string& mode : modes) {
    contenders.push_back(std::make_unique<Contender>(
        "pytorch-" + mode, pytorch_program(bench, python.program, work, mode), interrupt));
  }
}

// Steps of all, by turns, as far as no signal ends them: then what it says.
std::optional<Error> take_turns(const TrainBench& bench, const Contenders& contenders,
                                Contender& products, std::vector<double>& product_rates) try {
  for (const auto& one : contenders) {
    one->warm_up();
    if (one == contenders.front() && !one->failure().empty())
      return std::nullopt;  // nothing to compare
  }
  for (int step = 1; step <= bench.steps; ++step) {
    for (const auto& one : contenders) one->step(step, bench.steps);
    tell(fmt::format("matrix products alone, after step {} of {}", step, bench.steps));
    product_rates.push_back(products.products());
  }
  tell("");
  for (const auto& one : contenders) one->finish(one != contenders.front());
  if (bench.profile) contenders.front()->profile();
  return std::nullopt;
} catch (const Error& error) {
  if (error.code() != ErrorCode::kAborted) throw;
  tell("");
  return error;
}

}  // namespace

bool run_train(const TrainBench& bench) {
  if (!bench.json.empty()) check_can_write(bench.json);
  const Interrupt interrupt;
  const nn::MemoryPlan plan = [&] {
    const auto ops = train::make_ops(bench.options);
    train::TrainOptions options = bench.options;
    train::settle_recompute(options, *ops, options.memory_limit);
    nn::MemoryPlan planned = train::plan_run(options, *ops);
    train::check_limit(options, planned, *ops);
    return planned;
  }();
  const int micro_batches = train::solved(bench.options.batch).accumulation;
  const TrainWork work{.model = train::formula_shape_of(bench.options).name,
                       .precision = std::string(plan::name(bench.options.precision)),
                       .recompute = std::string(train::name(bench.options.recompute)),
                       .batch = plan.setup.shape.batch * micro_batches,
                       .sequence = plan.setup.shape.sequence,
                       .threads = train::threads_of(bench.options),
                       .flops = (plan.flops.forward + plan.flops.backward) * micro_batches};

  Contender products("lockstep-products", our_program(bench, true), interrupt);
  Contenders contenders;
  contenders.push_back(
      std::make_unique<Contender>("lockstep", our_program(bench, false), interrupt));
  if (bench.peers) add_peers(bench, work, interrupt, contenders);
  std::vector<double> product_rates;
  const std::optional<Error> interrupted = take_turns(bench, contenders, products, product_rates);
  std::vector<TrainResult> results;
  for (const auto& one : contenders) results.push_back(one->result());
  std::sort(product_rates.begin(), product_rates.end());
  if (!product_rates.empty()) results.front().gemm_flops = quantile(product_rates, 0.5);
  results.front().planned_bytes = plan.bytes();
  for (TrainResult& one : results) {
    if (one.seconds.empty() && one.problem.empty()) one.problem = "no step was timed";
  }
  print_now(train_table(work, results));
  print_now(profile_table(results.front().profile));
  if (!products.failure().empty()) print_now(fmt::format("FAILED: {}\n", products.failure()));
  if (!bench.json.empty()) {
    write_file(bench.json, train_json(work, results));
    print_now(fmt::format("wrote {} results to {}\n", results.size(), bench.json.string()));
  }
  if (interrupted) throw *interrupted;
  return results.front().problem.empty() && products.failure().empty();
}

}  // namespace lockstep::bench
