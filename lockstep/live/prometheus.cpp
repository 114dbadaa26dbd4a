#include "lockstep/live/prometheus.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <vector>

namespace lockstep::live {
namespace {

std::string label_value(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

struct PrometheusMetric {
  std::string_view name;
  std::string_view type;
  std::string_view help;
  std::string samples = {};
};

class PrometheusText {
 public:
  // In the order in which metrics are first added.
  void add(std::string_view name, std::string_view type, std::string_view help,
           std::string_view labels, double value) {
    if (std::isnan(value)) return;
    auto found = metrics_.begin();
    while (found != metrics_.end() && found->name != name) ++found;
    if (found == metrics_.end()) found = metrics_.insert(found, {name, type, help});
    const std::string number =
        std::isinf(value) ? (value > 0 ? "+Inf" : "-Inf") : fmt::format("{}", value);
    found->samples += fmt::format("{}{{{}}} {}\n", name, labels, number);
  }

  std::string text() const {
    std::string text;
    for (const PrometheusMetric& metric : metrics_) {
      text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{3}", metric.name, metric.help,
                          metric.type, metric.samples);
    }
    return text;
  }

 private:
  std::vector<PrometheusMetric> metrics_;
};

void add_ranks(PrometheusText& text, std::string_view run, const RankFigures& ranks) {
  for (std::size_t i = 0; i < ranks.workers.size(); ++i) {
    const RankFigures::Worker& worker = ranks.workers[i];
    if (!worker.known) continue;
    const auto rank = static_cast<std::int64_t>(i);
    const std::string labels = fmt::format("{},rank=\"{}\"", run, rank * ranks.ranks_of_worker);
    text.add("lockstep_rank_compute_seconds", "gauge",
             "Compute of a rank in a step, without waiting; a mean over the last steps.", labels,
             worker.compute_ms / 1000);
    text.add("lockstep_rank_communication_seconds", "gauge",
             "Time of a step in which a rank was sending or receiving.", labels,
             worker.communication_ms / 1000);
    text.add("lockstep_rank_exposed_seconds", "gauge",
             "Part of the communication in which a rank's compute waited.", labels,
             worker.exposed_ms / 1000);
    text.add("lockstep_rank_is_straggler", "gauge",
             "1: the rank computes longest and holds the others up.", labels,
             ranks.straggler == rank ? 1 : 0);
  }
}

void add_run(PrometheusText& text, const std::string& id, const RunFollower::View& view) {
  const std::string run = fmt::format("run=\"{}\"", label_value(id));
  const MetricsTotals& totals = view.totals;
  const auto known = [](double value) { return value > 0 ? value : std::nan(""); };
  const auto gauge = [&](std::string_view name, std::string_view help, double value) {
    text.add(name, "gauge", help, run, value);
  };
  const auto counter = [&](std::string_view name, std::string_view help, double value) {
    text.add(name, "counter", help, run, value);
  };
  gauge("lockstep_running", "1: the run is training.", view.state == RunState::kRunning ? 1 : 0);
  gauge("lockstep_failed", "1: the run failed, or its process was killed.",
        view.state == RunState::kFailed || view.state == RunState::kGone ? 1 : 0);
  gauge("lockstep_planned_steps", "The step at which the run ends.", known(view.figures.steps));
  gauge("lockstep_workers", "Ranks of the run.", static_cast<double>(view.figures.workers));
  gauge("lockstep_memory_planned_bytes", "Memory that the plan gives rank 0.",
        known(view.figures.memory_bytes));
  if (totals.rows == 0) return;
  counter("lockstep_steps_total", "Steps done.", totals.last[Metric::kStep]);
  counter("lockstep_skipped_steps_total", "Steps whose gradient was NaN or infinite.",
          static_cast<double>(totals.skipped));
  counter("lockstep_tokens_total", "Tokens trained on.", totals.tokens);
  gauge("lockstep_loss", "Training loss of the last step.", totals.last[Metric::kLoss]);
  if (totals.last_validation) {
    gauge("lockstep_validation_loss", "The last validation loss.", totals.last_validation->loss);
    gauge("lockstep_best_validation_loss", "The lowest validation loss.",
          totals.best_validation->loss);
  }
  gauge("lockstep_learning_rate", "Learning rate of the last step.", totals.last[Metric::kRate]);
  gauge("lockstep_gradient_norm", "Norm of all gradients of the last step, before clipping.",
        totals.last[Metric::kGradientNorm]);
  gauge("lockstep_loss_scale", "Loss scale of the last step.", totals.last[Metric::kLossScale]);
  gauge("lockstep_step_seconds", "Computing time of the last step.",
        totals.last[Metric::kStepMs] / 1000);
  gauge("lockstep_tokens_per_second", "Tokens per second, of about the last ten seconds.",
        known(view.tokens_per_second));
  gauge("lockstep_flops_per_second", "FLOPs of the model per second.",
        known(view.flops_per_second));
  gauge("lockstep_flops_utilization_ratio",
        "FLOPs of the model relative to what the machine reaches in a large matrix product.",
        known(view.utilization));
  gauge("lockstep_remaining_seconds", "Estimated time until the run ends.",
        view.state == RunState::kRunning ? view.seconds_left : std::nan(""));
  gauge("lockstep_memory_peak_bytes", "The most memory that rank 0 has had.",
        known(totals.most_memory_bytes));
  counter("lockstep_compute_seconds_total", "Time of all steps.", totals.step_ms / 1000);
  counter("lockstep_data_wait_seconds_total", "Time spent waiting for batches.",
          totals.data_ms / 1000);
  counter("lockstep_checkpoint_seconds_total", "Time in which checkpoints kept the run waiting.",
          totals.checkpoint_ms / 1000);
  counter("lockstep_validation_seconds_total", "Time of validations.", totals.validation_ms / 1000);
  if (totals.shared_steps > 0) {
    counter("lockstep_sent_bytes_total", "Parameters and gradients sent by all ranks.",
            totals.bytes_sent);
    counter("lockstep_exposed_seconds_total",
            "Time in which compute waited for communication, a mean over ranks.",
            totals.exposed_ms / 1000);
  }
  add_ranks(text, run, view.ranks);
}

}  // namespace

std::string prometheus_text(std::span<const std::shared_ptr<RunFollower>> runs) {
  PrometheusText text;
  for (const auto& run : runs) {
    run->visit([&](const RunFollower::View& view) { add_run(text, run->id(), view); });
  }
  return text.text();
}

}  // namespace lockstep::live
