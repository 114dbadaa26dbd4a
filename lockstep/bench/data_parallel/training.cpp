#include "lockstep/bench/data_parallel/training.h"

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::bench::data_parallel {
namespace {

namespace fs = std::filesystem;
using MetricsJson = nlohmann::json;

constexpr double kMilliseconds = 1000;  // of a second

double number_in(const MetricsJson& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : 0;
}

std::optional<RankCosts> costs_in(const MetricsJson& line) {
  if (!line.contains("compute_ms")) return std::nullopt;
  return RankCosts{.compute_seconds = number_in(line, "compute_ms") / kMilliseconds,
                   .communication_seconds = number_in(line, "communication_ms") / kMilliseconds,
                   .exposed_seconds = number_in(line, "exposed_ms") / kMilliseconds,
                   .bytes_sent = number_in(line, "bytes_sent"),
                   .staleness = number_in(line, "staleness")};
}

std::vector<TrainedStep> read_steps(const fs::path& folder) {
  std::vector<TrainedStep> steps;
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string text; std::getline(file, text);) {
    const auto line = MetricsJson::parse(text, nullptr, false);
    if (!line.is_object()) continue;
    TrainedStep step;
    step.step = static_cast<std::int64_t>(number_in(line, "step"));
    step.loss = number_in(line, "loss");
    if (line.contains("val_loss")) step.validation_loss = number_in(line, "val_loss");
    step.tokens = number_in(line, "tokens");
    step.seconds = (number_in(line, "step_ms") + number_in(line, "data_ms")) / kMilliseconds;
    step.ranks = costs_in(line);
    steps.push_back(step);
  }
  return steps;
}

}  // namespace

std::optional<double> Trained::validation_loss() const {
  std::optional<double> last;
  for (const TrainedStep& step : steps) {
    if (step.validation_loss) last = step.validation_loss;
  }
  return last;
}

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

std::string problem_of(const Process& process) {
  if (process.how_it_ended() == "exit code 0") return "";
  return process.how_it_ended() + ": " + process.last_words();
}

Trained run_training(const fs::path& command, const Training& training, const fs::path& folder,
                     const Interrupt& interrupt) {
  Program program{{command.string(), "train"}, {}};
  auto& arguments = program.arguments;
  arguments.insert(arguments.end(), training.settings.begin(), training.settings.end());
  arguments.push_back("run.dir=" + folder.string());
  arguments.insert(arguments.end(), {"--ranks", std::to_string(training.ranks)});
  Process process(program);
  wait_for(process, interrupt);
  Trained trained;
  trained.problem = problem_of(process);
  if (trained.problem.empty()) trained.steps = read_steps(folder);
  if (trained.problem.empty() && trained.steps.empty()) {
    trained.problem = "the run has left no metrics: " + process.last_words();
  }
  return trained;
}

}  // namespace lockstep::bench::data_parallel
