#include "lockstep/bench/data_parallel/training.h"

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/train/observe/metrics_file.h"

namespace lockstep::bench::data_parallel {
namespace {

namespace fs = std::filesystem;
std::vector<TrainedStep> read_steps(const fs::path& folder) {
  std::vector<TrainedStep> steps;
  train::read_metrics(folder, [&](const train::StepRecord& record) {
    steps.push_back({.step = record.metrics.step,
                     .loss = record.metrics.loss,
                     .validation_loss = record.validation_loss,
                     .tokens = static_cast<double>(record.metrics.tokens),
                     .seconds = record.metrics.seconds + record.data_seconds,
                     .stalled_seconds = record.checkpoint_seconds,
                     .background_seconds = record.background_seconds,
                     .memory_bytes = static_cast<double>(record.memory_bytes),
                     .ranks = record.workers});
  });
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
    trained.problem = "the run wrote no metrics: " + process.last_words();
  }
  return trained;
}

}  // namespace lockstep::bench::data_parallel
