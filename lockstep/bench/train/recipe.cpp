#include "lockstep/bench/train/recipe.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/interrupt.h"
#include "lockstep/bench/process.h"
#include "lockstep/bench/statistics.h"
#include "lockstep/bench/train/peer_environment.h"
#include "lockstep/bench/train/python.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
using RecipeJson = nlohmann::ordered_json;

constexpr std::string_view kRecipeOurs = "lockstep";
constexpr int kValidationBatches = 20;
constexpr double kRate = 2e-3;

Program our_training(const RecipeBench& bench, const fs::path& folder) {
  Program program{{bench.command.string(), "train"}, {}};
  for (const std::string& setting :
       {fmt::format("data.text={}", fs::absolute(bench.text).string()),
        std::string("data.tokenizer=character"),
        fmt::format("run.dir={}", (folder / "run").string()), std::string("model.layers=4"),
        std::string("model.heads=4"), std::string("model.hidden=128"),
        std::string("train.seq_len=64"), std::string("train.global_batch_size=12"),
        fmt::format("train.steps={}", bench.steps), std::string("train.precision=f32"),
        std::string("train.recompute=none"), fmt::format("train.threads={}", bench.threads),
        std::string("train.validate_every=250"),
        fmt::format("train.validate_batches={}", kValidationBatches),
        std::string("optimizer.beta2=0.99"), fmt::format("optimizer.learning_rate={}", kRate),
        fmt::format("schedule.warmup_steps={}", std::min(100, bench.steps / 2)),
        std::string("schedule.decay=cosine"), std::string("checkpoint.every=0")}) {
    program.arguments.push_back(setting);
  }
  return program;
}

Program peer_training(const RecipeBench& bench, const std::string& python, const char* mode,
                      const fs::path& folder) {
  return {
      {python, (bench.peers_folder / "recipe_pytorch.py").string(), "--text",
       fs::absolute(bench.text).string(), "--json", (folder / "result.json").string(), "--mode",
       mode, "--steps", std::to_string(bench.steps), "--warmup",
       std::to_string(std::min(100, bench.steps / 2)), "--threads", std::to_string(bench.threads),
       "--validate-batches", std::to_string(kValidationBatches), "--rate", fmt::to_string(kRate)},
      peer_environment(bench.threads)};
}

// The last validation loss of metrics.jsonl, or what the peer has written.
double read_loss(const fs::path& folder) {
  std::ifstream metrics(folder / "run" / "metrics.jsonl");
  double loss = 0;
  for (std::string line; std::getline(metrics, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("val_loss") && json["val_loss"].is_number()) {
      loss = json["val_loss"];
    }
  }
  std::ifstream result(folder / "result.json");
  const auto json = nlohmann::json::parse(result, nullptr, false);
  return json.is_object() ? json.value("validation_loss", loss) : loss;
}

// Waits without end, but not through a Ctrl-C.
void wait_for(Process& process, const Interrupt& interrupt) {
  pollfd watched[] = {{process.ended_fd(), POLLIN, 0}, {interrupt.fd(), POLLIN, 0}};
  while (watched[0].revents == 0) {
    if (::poll(watched, std::size(watched), -1) < 0 && errno != EINTR) {
      fail_errno("cannot wait for a training", errno);
    }
    interrupt.check();
  }
  process.wait_until(deadline_in(std::chrono::seconds(5)));
}

void run_once(const Program& program, const fs::path& folder, const Interrupt& interrupt,
              RecipeResult& result) {
  const auto begin = std::chrono::steady_clock::now();
  Process process(program);
  wait_for(process, interrupt);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  if (process.how_it_ended() != "exit code 0") {
    result.problem = process.how_it_ended() + ": " + process.last_words();
    return;
  }
  result.seconds.push_back(taken.count());
  result.validation_loss = read_loss(folder);
}

}  // namespace

double RecipeResult::median_seconds() const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  return quantile(sorted, 0.5);
}

std::string recipe_table(const RecipeBench& bench, const std::vector<RecipeResult>& results) {
  std::string text = fmt::format(
      "GPT of 4 x 128 on letters of {}: {} steps of 12 x 64, {} thread{}, f32\n\n"
      "{:<16}  {:>11}  {:>15}\n",
      bench.text.filename().string(), bench.steps, bench.threads, bench.threads == 1 ? "" : "s", "",
      "end to end", "validation loss");
  const RecipeResult* ours = nullptr;
  for (const RecipeResult& one : results) {
    if (one.implementation == kRecipeOurs && !one.seconds.empty()) ours = &one;
    if (one.seconds.empty()) {
      text += fmt::format("{:<16}  {}\n", one.implementation, one.problem);
    } else {
      text += fmt::format("{:<16}  {:>11}  {:>15.4f}\n", one.implementation,
                          format_seconds(one.median_seconds()), one.validation_loss);
    }
  }
  text += '\n';
  for (const RecipeResult& one : results) {
    if (ours == nullptr || &one == ours || one.seconds.empty()) continue;
    text += fmt::format("against {:<16} {:.2f} x as fast\n", one.implementation,
                        one.median_seconds() / ours->median_seconds());
  }
  return text;
}

std::string recipe_json(const RecipeBench& bench, const std::vector<RecipeResult>& results) {
  RecipeJson array = RecipeJson::array();
  for (const RecipeResult& one : results) {
    RecipeJson object{{"implementation", one.implementation},
                      {"steps", bench.steps},
                      {"threads", bench.threads},
                      {"seconds", one.seconds}};
    if (one.seconds.empty()) {
      object["problem"] = one.problem;
    } else {
      object["validation_loss"] = one.validation_loss;
    }
    array.push_back(std::move(object));
  }
  return array.dump(2) + "\n";
}

bool run_recipe(const RecipeBench& bench) {
  if (!bench.json.empty()) check_can_write(bench.json);
  const Interrupt interrupt;
  std::vector<RecipeResult> results{{.implementation = std::string(kRecipeOurs)}};
  Python python;
  if (bench.peers) {
    python = find_python(bench.python, bench.command);
    results.push_back({.implementation = "pytorch-eager", .problem = python.problem});
    results.push_back({.implementation = "pytorch-compile", .problem = python.problem});
  }
  for (int run = 0; run < bench.runs; ++run) {
    for (RecipeResult& one : results) {
      if (!one.problem.empty()) continue;
      const ScratchFolder folder;
      const bool ours = one.implementation == kRecipeOurs;
      const char* mode = one.implementation == "pytorch-compile" ? "compile" : "eager";
      run_once(ours ? our_training(bench, folder.path())
                    : peer_training(bench, python.program, mode, folder.path()),
               folder.path(), interrupt, one);
    }
  }
  fmt::print("{}", recipe_table(bench, results));
  std::fflush(stdout);
  if (!bench.json.empty()) write_file(bench.json, recipe_json(bench, results));
  return !results.front().seconds.empty();
}

}  // namespace lockstep::bench
