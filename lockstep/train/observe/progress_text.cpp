#include "lockstep/train/observe/progress_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/text/number.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"

namespace lockstep::train {
namespace {

constexpr double kMemorySeconds = 10;  // after which a step counts 1/e

std::string progress_count(std::int64_t count) {
  return format_count(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
}

struct LinePiece {
  std::string text;
  int importance;  // the least goes first
};

std::vector<LinePiece> pieces_of(const Progress& progress) {
  const std::string steps = progress_count(progress.steps);
  std::vector<LinePiece> pieces;
  pieces.push_back(
      {fmt::format("step {:>{}}/{}", progress_count(progress.step), steps.size(), steps), 10});
  pieces.push_back({fmt::format("loss {:.4f}", progress.loss), 9});
  if (progress.skipped) pieces.push_back({"skipped", 8});
  if (const auto& one = progress.straggler) {
    pieces.push_back({fmt::format("rank {} is {:.1f}x slower", one->rank, one->times), 8});
  }
  if (progress.most_stale > 0) {
    pieces.push_back(
        {fmt::format("stale {:.1f}, {:.1f} at most", progress.staleness, progress.most_stale), 3});
  }
  if (progress.validation_loss) {
    pieces.push_back({fmt::format("val {:.4f}", *progress.validation_loss), 5});
  }
  pieces.push_back({fmt::format("lr {:.2e}", progress.rate), 4});
  if (const auto norm = progress.gradient_norm) {
    pieces.push_back({fmt::format("norm {}", *norm < 1000 ? fmt::format("{:.3f}", *norm)
                                                          : fmt::format("{:.3g}", *norm)),
                      3});
  }
  if (std::isfinite(progress.tokens_per_second)) {
    pieces.push_back({progress_count(std::llround(progress.tokens_per_second)) + " tokens/s", 6});
  }
  if (progress.flops_per_second > 0 && std::isfinite(progress.flops_per_second)) {
    std::string text = format_si(progress.flops_per_second, "FLOP/s");
    if (progress.peak_flops > 0) {
      text += fmt::format(" ({:.0f}%)", 100 * progress.flops_per_second / progress.peak_flops);
    }
    pieces.push_back({std::move(text), 2});
  }
  if (progress.memory_bytes > 0) {
    pieces.push_back({format_bytes(static_cast<double>(progress.memory_bytes)), 1});
  }
  if (progress.step < progress.steps) {
    pieces.push_back({format_duration(progress.seconds_left) + " left", 7});
  }
  return pieces;
}

std::string joined_pieces(const std::vector<LinePiece>& pieces) {
  std::string line;
  for (const LinePiece& piece : pieces) {
    if (!line.empty()) line += "  ";
    line += piece.text;
  }
  return line;
}

}  // namespace

ProgressMeter::ProgressMeter(const RunFacts& facts)
    : step_flops_(facts.step_flops), straggler_(facts.work) {
  progress_.steps = facts.steps;
  progress_.peak_flops = facts.peak_flops;
}

double ProgressMeter::seconds_per_step() const {
  return seconds_ / steps_ + seconds_between_ / static_cast<double>(all_steps_);
}

Progress ProgressMeter::add(const StepRecord& record) {
  const StepMetrics& metrics = record.metrics;
  const double seconds = metrics.seconds + record.data_seconds;
  const double fading = std::exp(-seconds / kMemorySeconds);
  steps_ = steps_ * fading + 1;
  tokens_ = tokens_ * fading + static_cast<double>(metrics.tokens);
  seconds_ = seconds_ * fading + seconds;
  ++all_steps_;
  seconds_between_ += record.checkpoint_seconds + record.validation_seconds;

  progress_.step = metrics.step;
  progress_.loss = metrics.loss;
  progress_.skipped = metrics.skipped;
  if (record.validation_loss) progress_.validation_loss = record.validation_loss;
  progress_.rate = metrics.rate;
  progress_.gradient_norm.reset();
  if (metrics.has_norm) progress_.gradient_norm = metrics.gradient_norm;
  progress_.tokens_per_second = tokens_ / seconds_;
  progress_.flops_per_second = step_flops_ * steps_ / seconds_;
  progress_.memory_bytes = record.memory_bytes;
  progress_.staleness = record.workers ? record.workers->staleness : 0;
  progress_.most_stale = record.workers ? record.workers->most_stale : 0;
  straggler_.add(metrics.costs);
  progress_.straggler = straggler_.straggler();
  progress_.seconds_left =
      static_cast<double>(std::max<std::int64_t>(progress_.steps - metrics.step, 0)) *
      seconds_per_step();
  return progress_;
}

std::string progress_line(const Progress& progress) { return joined_pieces(pieces_of(progress)); }

std::string progress_line(const Progress& progress, int columns) {
  const auto width = static_cast<std::size_t>(std::max(columns, 0));
  std::vector<LinePiece> pieces = pieces_of(progress);
  std::string line = joined_pieces(pieces);
  while (line.size() > width && pieces.size() > 2) {
    pieces.erase(std::min_element(
        pieces.begin(), pieces.end(),
        [](const LinePiece& a, const LinePiece& b) { return a.importance < b.importance; }));
    line = joined_pieces(pieces);
  }
  return line.substr(0, width);
}

std::string validation_line(const ValidationProgress& progress, std::int64_t steps, int columns) {
  const std::string all = progress_count(steps);
  const double part = static_cast<double>(progress.done) /
                      static_cast<double>(std::max<std::uint64_t>(progress.all, 1));
  return fmt::format("step {:>{}}/{}  validating {:.0f}%, {} of {} micro-batches",
                     progress_count(progress.step), all.size(), all, 100 * part,
                     format_count(progress.done), format_count(progress.all))
      .substr(0, static_cast<std::size_t>(std::max(columns, 0)));
}

std::string opening_text(const RunFacts& facts) {
  std::string text = facts.name.empty() ? "" : facts.name + ": ";
  text += fmt::format("{}, {} parameters in {}\n{}", facts.model,
                      format_words(static_cast<double>(facts.parameters)), facts.precision,
                      facts.hardware);
  if (facts.peak_flops > 0) {
    text += fmt::format(", matrix products at {}", format_si(facts.peak_flops, "FLOP/s"));
  }
  text += '\n';
  if (facts.workers > 1) text += fmt::format("{} workers, {}\n", facts.workers, facts.strategy);
  if (!facts.data.empty()) text += facts.data + '\n';
  if (facts.batch > 0) {
    text += fmt::format("a step has {} sequence{} in micro-batches of {}, {} tokens\n",
                        progress_count(facts.batch), facts.batch == 1 ? "" : "s",
                        progress_count(facts.micro_batch), progress_count(facts.step_tokens));
  }
  if (facts.first_step > facts.steps) {
    text += fmt::format("{} steps are done", progress_count(facts.first_step - 1));
  } else if (facts.first_step > 1) {
    text += fmt::format("steps {} to {}, resumed", progress_count(facts.first_step),
                        progress_count(facts.steps));
  } else {
    text += fmt::format("{} step{}", progress_count(facts.steps), facts.steps == 1 ? "" : "s");
  }
  if (facts.memory_bytes > 0) {
    text += fmt::format(", {} of memory", format_bytes(static_cast<double>(facts.memory_bytes)));
  }
  return printable(text + fmt::format(", into {}\n", facts.folder.string()));
}

std::string closing_text(const RunEnd& end, const std::optional<Progress>& last, std::int64_t done,
                         std::int64_t steps) {
  constexpr std::string_view kReasons[] = {"finished", "interrupted", "failed"};
  std::string text(kReasons[static_cast<std::size_t>(end.reason)]);
  if (last) {
    text +=
        fmt::format(" at step {} of {}", progress_count(last->step), progress_count(last->steps));
  } else if (end.reason == RunEnd::Reason::kFinished) {
    text += " without a step";
  } else if (done > 0) {
    text += fmt::format(" at step {} of {}", progress_count(done), progress_count(steps));
  } else {
    text += " before the first step";
  }
  return text + fmt::format(" after {}\n", format_duration(end.seconds));
}

std::string sample_text(std::int64_t step, const std::string& text) {
  std::string lines = fmt::format("sample after step {}:\n", progress_count(step));
  const std::string shown = printable(text);
  for (const std::string_view line : split_text(shown, '\n')) {
    lines += line.empty() ? "\n" : fmt::format("    {}\n", line);
  }
  return lines;
}

}  // namespace lockstep::train
