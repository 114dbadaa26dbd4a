#include "lockstep/train/observe/metrics_line.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace {

using MetricsJson = nlohmann::json;

constexpr double kMilliseconds = 1000;  // of a second

// Readers take a number without a point for a whole one, and -0 for 0.
std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = fmt::to_string(value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

double metric_number(const MetricsJson& line, const char* key, double otherwise) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : otherwise;
}

template <class Whole>
Whole metric_whole(const MetricsJson& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number_integer() ? found->get<Whole>() : Whole{0};
}

// What a line says of several workers.
std::optional<WorkerCosts> parse_workers(const MetricsJson& line) {
  if (!line.contains("compute_ms")) return std::nullopt;
  const auto seconds = [&](const char* key) { return metric_number(line, key, 0) / kMilliseconds; };
  return WorkerCosts{
      .compute_seconds = seconds("compute_ms"),
      .communication_seconds = seconds("communication_ms"),
      .exposed_seconds = seconds("exposed_ms"),
      .longest_exposed_seconds = seconds("exposed_max_ms"),
      .bytes_sent = metric_whole<std::uint64_t>(line, "bytes_sent"),
      .bytes_across = metric_whole<std::uint64_t>(line, "bytes_across"),
      .staleness = metric_number(line, "staleness", 0),
      .most_stale = metric_number(line, "staleness_max", 0),
      .slowest_rank = line.contains("slowest_rank") ? metric_whole<int>(line, "slowest_rank") : -1,
      .slowest_seconds = seconds("slowest_ms")};
}

}  // namespace

std::string metrics_line(const StepRecord& record, bool with_loss_scale) {
  const StepMetrics& metrics = record.metrics;
  std::string line = fmt::format("{{\"step\":{}", metrics.step);
  const auto add = [&](std::string_view key, double value) {
    fmt::format_to(std::back_inserter(line), ",\"{}\":{}", key, json_number(value));
  };
  add("loss", metrics.loss);
  if (record.validation_loss) add("val_loss", *record.validation_loss);
  add("lr", metrics.rate);
  if (metrics.has_norm) add("grad_norm", metrics.gradient_norm);
  fmt::format_to(std::back_inserter(line), ",\"tokens\":{}", metrics.tokens);
  add("tokens_per_s", metrics.tokens_per_second());
  add("step_ms", metrics.seconds * kMilliseconds);
  add("data_ms", record.data_seconds * kMilliseconds);
  if (record.checkpoint_seconds > 0)
    add("checkpoint_ms", record.checkpoint_seconds * kMilliseconds);
  if (record.background_seconds > 0)
    add("checkpoint_background_ms", record.background_seconds * kMilliseconds);
  if (record.validation_seconds > 0)
    add("validation_ms", record.validation_seconds * kMilliseconds);
  fmt::format_to(std::back_inserter(line), ",\"memory_bytes\":{}", record.memory_bytes);
  if (metrics.filed.bytes() > 0) {
    fmt::format_to(std::back_inserter(line), ",\"file_read_bytes\":{},\"file_written_bytes\":{}",
                   metrics.filed.read_bytes, metrics.filed.written_bytes);
    add("file_wait_ms", metrics.filed.waited_seconds * kMilliseconds);
  }
  if (metrics.ranks > 1) fmt::format_to(std::back_inserter(line), ",\"ranks\":{}", metrics.ranks);
  if (const auto& workers = record.workers) {
    add("compute_ms", workers->compute_seconds * kMilliseconds);
    add("communication_ms", workers->communication_seconds * kMilliseconds);
    add("exposed_ms", workers->exposed_seconds * kMilliseconds);
    add("exposed_max_ms", workers->longest_exposed_seconds * kMilliseconds);
    fmt::format_to(std::back_inserter(line), ",\"bytes_sent\":{}", workers->bytes_sent);
    if (workers->bytes_across > 0) {
      fmt::format_to(std::back_inserter(line), ",\"bytes_across\":{}", workers->bytes_across);
    }
    add("staleness", workers->staleness);
    add("staleness_max", workers->most_stale);
    if (workers->slowest_rank >= 0) {
      fmt::format_to(std::back_inserter(line), ",\"slowest_rank\":{}", workers->slowest_rank);
      add("slowest_ms", workers->slowest_seconds * kMilliseconds);
    }
  }
  if (with_loss_scale) add("loss_scale", metrics.loss_scale);
  fmt::format_to(std::back_inserter(line), ",\"skipped\":{}}}\n", metrics.skipped);
  return line;
}

std::optional<StepRecord> parse_metrics_line(std::string_view text) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const MetricsJson line = MetricsJson::parse(text, nullptr, false);
  if (!line.is_object()) return std::nullopt;
  StepRecord record;
  StepMetrics& metrics = record.metrics;
  metrics.step = metric_whole<std::int64_t>(line, "step");
  if (metrics.step < 1) return std::nullopt;
  metrics.loss = metric_number(line, "loss", kNone);
  if (line.contains("val_loss")) record.validation_loss = metric_number(line, "val_loss", kNone);
  metrics.rate = metric_number(line, "lr", kNone);
  metrics.has_norm = line.contains("grad_norm");
  metrics.gradient_norm = metric_number(line, "grad_norm", kNone);
  metrics.tokens = metric_whole<std::int64_t>(line, "tokens");
  metrics.ranks = metric_whole<int>(line, "ranks");
  metrics.seconds = metric_number(line, "step_ms", kNone) / kMilliseconds;
  record.data_seconds = metric_number(line, "data_ms", 0) / kMilliseconds;
  record.checkpoint_seconds = metric_number(line, "checkpoint_ms", 0) / kMilliseconds;
  record.background_seconds = metric_number(line, "checkpoint_background_ms", 0) / kMilliseconds;
  record.validation_seconds = metric_number(line, "validation_ms", 0) / kMilliseconds;
  record.memory_bytes = metric_whole<std::uint64_t>(line, "memory_bytes");
  metrics.filed = {.read_bytes = metric_whole<std::uint64_t>(line, "file_read_bytes"),
                   .written_bytes = metric_whole<std::uint64_t>(line, "file_written_bytes"),
                   .waited_seconds = metric_number(line, "file_wait_ms", 0) / kMilliseconds};
  record.workers = parse_workers(line);
  metrics.loss_scale = metric_number(line, "loss_scale", 1);
  const auto skipped = line.find("skipped");
  metrics.skipped = skipped != line.end() && skipped->is_boolean() && skipped->get<bool>();
  return record;
}

}  // namespace lockstep::train
