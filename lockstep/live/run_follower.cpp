#include "lockstep/live/run_follower.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/observe/metrics_file.h"
#include "lockstep/train/observe/report/timeline.h"
#include "lockstep/train/observe/run_record.h"
#include "lockstep/train/observe/trace_file.h"

namespace lockstep::live {
namespace {

using MessageJson = nlohmann::ordered_json;

constexpr std::size_t kMostLogLines = 1000;
constexpr std::size_t kMostSamples = 200;
constexpr std::size_t kMostSmallBytes = std::size_t{4} << 20;  // of lines in one poll
constexpr std::uint64_t kMostTraceBytes = std::uint64_t{256} << 20;

double seconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string message_text(const MessageJson& json) {
  return json.dump(-1, ' ', false, MessageJson::error_handler_t::replace);
}

MessageJson number_or_null(double value) {
  return std::isfinite(value) ? MessageJson(value) : MessageJson();
}

MessageJson validation_json(const std::optional<MetricsTotals::Validation>& taken) {
  if (!taken) return {};
  return {{"step", taken->step}, {"loss", taken->loss}};
}

// A sample or an event as it can stand in a message; empty: the line is none.
std::string compact_sample(std::string_view line) {
  const auto json = MessageJson::parse(line, nullptr, false);
  const bool whole = json.is_object() && json.contains("step") && json["step"].is_number() &&
                     json.contains("text") && json["text"].is_string();
  return whole ? message_text(json) : "";
}

std::string timeline_message(std::string head, const std::filesystem::path& path) {
  const auto ranks = train::read_trace(path);
  const auto timeline = train::draw_timeline(ranks);
  if (!timeline) return "";
  MessageJson colours = MessageJson::array();
  for (const train::TimelineColour& colour : timeline->colours) {
    colours.push_back({{"style", colour.style}, {"name", colour.name}});
  }
  const MessageJson json = {{"step", timeline->step},
                            {"seconds", number_or_null(timeline->seconds)},
                            {"colours", colours},
                            {"note", train::describe_timeline(*timeline, ranks)},
                            {"svg", timeline->svg}};
  return head + message_text(json).substr(1);
}

}  // namespace

void RunFollower::Lines::add(std::string line, std::size_t most) {
  kept.push_back(std::move(line));
  if (kept.size() <= most) return;
  kept.pop_front();
  ++first;
}

void RunFollower::Lines::clear() {
  if (end() == 0) return;
  kept.clear();
  first = 0;
  ++epoch;
}

std::optional<std::string> RunFollower::Lines::news(std::string_view head, std::string_view name,
                                                    std::uint64_t& seen_epoch,
                                                    std::uint64_t& seen) const {
  if (seen_epoch != epoch) {
    const bool had = seen > 0;
    seen_epoch = epoch;
    seen = 0;
    if (end() == 0 && !had) return std::nullopt;
  } else if (seen == end()) {
    return std::nullopt;
  }
  const std::uint64_t from = std::max(seen, first);
  std::vector<std::string_view> lines;
  for (std::uint64_t i = from; i < end(); ++i) lines.push_back(kept[i - first]);
  seen = end();
  return fmt::format("{}\"from\":{},\"{}\":[{}]}}", head, from, name, fmt::join(lines, ","));
}

RunFollower::RunFollower(std::string id, std::filesystem::path folder)
    : id_(std::move(id)),
      folder_(std::move(folder)),
      metrics_(folder_),
      log_tail_(train::log_path(folder_)),
      sample_tail_(folder_ / "samples.jsonl"),
      facts_file_(train::facts_path(folder_)),
      ranks_file_(train::ranks_path(folder_)) {}

bool RunFollower::poll(std::size_t most_bytes) {
  const std::lock_guard lock(mutex_);
  poll_small_files();
  poll_lines();
  const auto before = std::pair(metrics_.totals().rows, metrics_.steps().epoch());
  const bool more = metrics_.poll(most_bytes);
  const bool grew = before != std::pair(metrics_.totals().rows, metrics_.steps().epoch());
  if (grew || (!more && reading_)) ++status_version_;
  if (!more) reading_ = false;
  if (grew || last_change_ == 0) {
    constexpr double kNanoseconds = 1e9;
    const FileStamp stamp = stamp_of(train::metrics_path(folder_));
    last_change_ = static_cast<double>(stamp.changed_ns) / kNanoseconds;
  }
  const RunState state = state_of(events_, folder_, seconds_now() - last_change_);
  if (std::exchange(state_, state) != state) ++status_version_;
  poll_trace();
  return more;
}

void RunFollower::poll_small_files() {
  if (const auto text = facts_file_.changed()) {
    facts_ = compact_object(*text);
    figures_ = parse_figures(facts_);
    ++run_version_;
    ++status_version_;
  }
  if (const auto text = ranks_file_.changed()) {
    ranks_ = compact_object(*text);
    rank_figures_ = parse_ranks(ranks_);
    ++ranks_version_;
  }
}

void RunFollower::poll_lines() {
  log_tail_.poll(kMostSmallBytes, {.begins_again =
                                       [&] {
                                         events_ = {};
                                         log_.clear();
                                       },
                                   .line =
                                       [&](std::string_view line, std::uint64_t) {
                                         const auto before =
                                             std::pair(events_.began, events_.ended);
                                         if (!events_.add(line)) return;
                                         log_.add(compact_object(line), kMostLogLines);
                                         if (before == std::pair(events_.began, events_.ended))
                                           return;
                                         ++run_version_;
                                         ++status_version_;
                                       }});
  sample_tail_.poll(kMostSmallBytes, {.begins_again = [&] { samples_.clear(); },
                                      .line =
                                          [&](std::string_view line, std::uint64_t) {
                                            std::string sample = compact_sample(line);
                                            if (sample.empty()) return;
                                            samples_.add(std::move(sample), kMostSamples);
                                          }});
}

void RunFollower::poll_trace() {
  const std::filesystem::path path = train::trace_path(folder_);
  const FileStamp now = stamp_of(path);
  if (now == trace_) return;
  trace_ = now;
  timeline_.clear();
  ++timeline_version_;
  if (now == FileStamp{} || now.bytes > kMostTraceBytes) return;
  try {
    timeline_ = timeline_message(head("timeline"), path);
  } catch (const Error&) {
    // What cannot be read cannot be drawn; `lockstep inspect` says why.
  }
}

std::string RunFollower::head(std::string_view type) const {
  return fmt::format("{{\"type\":\"{}\",\"run\":{},", type, message_text(id_));
}

std::string RunFollower::run_message() const {
  MessageJson begins = MessageJson::array();
  for (const RunEvents::Begin& begin : events_.begins) {
    begins.push_back({{"time", begin.time},
                      {"first_step", begin.first_step},
                      {"workers", begin.workers},
                      {"strategy", begin.strategy}});
  }
  return fmt::format("{}\"folder\":{},\"begins\":{},\"facts\":{}}}", head("run"),
                     message_text(folder_.string()), message_text(begins),
                     facts_.empty() ? "null" : facts_);
}

RunFollower::View RunFollower::view() const {
  const MetricsTotals& totals = metrics_.totals();
  View view{.totals = totals,
            .figures = figures_,
            .ranks = rank_figures_,
            .events = events_,
            .state = state_};
  if (totals.recent_seconds > 0) {
    view.tokens_per_second = totals.recent_tokens / totals.recent_seconds;
    view.flops_per_second = figures_.step_flops * totals.recent_steps / totals.recent_seconds;
  }
  view.seconds_per_step = totals.seconds_per_step();
  if (figures_.peak_flops > 0) view.utilization = view.flops_per_second / figures_.peak_flops;
  const double left = figures_.steps - totals.last.or_zero(Metric::kStep);
  if (state_ == RunState::kRunning && left > 0) view.seconds_left = left * view.seconds_per_step;
  return view;
}

std::string RunFollower::status_message() const {
  const View now = view();
  const MetricsTotals& totals = now.totals;
  // What the last process took besides its steps: to begin, to write samples.
  const double lived =
      events_.ended ? events_.seconds : std::max(0.0, last_change_ - events_.began);
  const double in_steps = metrics_.recorded_ms_from(static_cast<double>(events_.first_step)) / 1000;
  const double other = events_.begun ? std::max(0.0, lived - in_steps) : 0;
  MessageJson slowest;
  for (const auto& [rank, steps] : totals.slowest) {
    if (slowest.is_null() || steps > slowest["steps"].get<std::int64_t>()) {
      slowest = {{"rank", rank}, {"steps", steps}};
    }
  }
  const MessageJson json = {
      {"state", name(state_)},
      {"reading", reading_},
      {"message", events_.message},
      {"began", number_or_null(events_.began)},
      {"ended", events_.ended ? number_or_null(events_.ended_at) : MessageJson()},
      {"changed", number_or_null(last_change_)},
      {"time", number_or_null(seconds_now())},
      {"rows", totals.rows},
      {"unreadable", totals.unreadable},
      {"skipped", totals.skipped},
      {"first_step", number_or_null(totals.first_step)},
      {"step", number_or_null(totals.last[Metric::kStep])},
      {"loss", number_or_null(totals.last[Metric::kLoss])},
      {"lr", number_or_null(totals.last[Metric::kRate])},
      {"grad_norm", number_or_null(totals.last[Metric::kGradientNorm])},
      {"validation", validation_json(totals.last_validation)},
      {"best_validation", validation_json(totals.best_validation)},
      {"tokens", number_or_null(totals.tokens)},
      {"memory_bytes", number_or_null(totals.most_memory_bytes)},
      {"tokens_per_second", number_or_null(now.tokens_per_second)},
      {"seconds_per_step", number_or_null(now.seconds_per_step)},
      {"flops_per_second", number_or_null(now.flops_per_second)},
      {"utilization", number_or_null(now.utilization)},
      {"seconds_left", number_or_null(now.seconds_left)},
      {"seconds",
       {{"computing", number_or_null((totals.step_ms - totals.waiting_ms) / 1000)},
        {"waiting for ranks", number_or_null(totals.waiting_ms / 1000)},
        {"waiting for data", number_or_null(totals.data_ms / 1000)},
        {"checkpoints", number_or_null(totals.checkpoint_ms / 1000)},
        {"validation", number_or_null(totals.validation_ms / 1000)},
        {"other", number_or_null(other)}}},
      {"background_seconds", number_or_null(totals.background_ms / 1000)},
      {"shared_steps", totals.shared_steps},
      {"communication_seconds", number_or_null(totals.communication_ms / 1000)},
      {"exposed_seconds", number_or_null(totals.exposed_ms / 1000)},
      {"exposed_max_seconds", number_or_null(totals.exposed_max_ms / 1000)},
      {"bytes_sent", number_or_null(totals.bytes_sent)},
      {"bytes_across", number_or_null(totals.bytes_across)},
      {"staleness", number_or_null(totals.staleness)},
      {"staleness_max", number_or_null(totals.staleness_max)},
      {"slowest", slowest}};
  return head("status") + message_text(json).substr(1);
}

std::vector<std::string> RunFollower::news(Seen& seen) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> messages;
  if (std::exchange(seen.run, run_version_) != run_version_) messages.push_back(run_message());
  const auto table = [&](const char* name, const SeriesTable& series, std::uint64_t& epoch,
                         std::size_t& whole) {
    if (std::exchange(epoch, series.epoch()) != series.epoch()) whole = 0;
    messages.push_back(fmt::format("{}\"table\":\"{}\",{}}}", head("series"), name,
                                   series.json(std::min(whole, series.size()))));
    // The last bucket may still change.
    whole = series.size() > 0 ? series.size() - 1 : 0;
  };
  if (std::exchange(seen.status, status_version_) != status_version_) {
    const MetricsTotals& totals = metrics_.totals();
    const auto rows = static_cast<std::uint64_t>(totals.rows);
    const bool other = seen.steps_epoch != metrics_.steps().epoch();
    if (std::exchange(seen.rows, rows) != rows || other) {
      table("steps", metrics_.steps(), seen.steps_epoch, seen.steps);
      table("validations", metrics_.validations(), seen.validations_epoch, seen.validations);
    }
    messages.push_back(status_message());
  }
  if (auto news = samples_.news(head("samples"), "samples", seen.samples_epoch, seen.samples)) {
    messages.push_back(*std::move(news));
  }
  if (auto news = log_.news(head("log"), "lines", seen.log_epoch, seen.log)) {
    messages.push_back(*std::move(news));
  }
  if (std::exchange(seen.ranks, ranks_version_) != ranks_version_) {
    messages.push_back(
        fmt::format("{}\"ranks\":{}}}", head("ranks"), ranks_.empty() ? "null" : ranks_));
  }
  if (std::exchange(seen.timeline, timeline_version_) != timeline_version_) {
    messages.push_back(timeline_.empty() ? head("timeline") + "\"svg\":\"\"}" : timeline_);
  }
  return messages;
}

std::string RunFollower::part(MetricsFollower::Axis axis, double from, double to,
                              std::size_t points) const {
  const MetricsFollower::Part part = [&] {
    const std::lock_guard lock(mutex_);
    return metrics_.part(axis, from, to);
  }();
  const auto tables = part.read(points);
  if (!tables) return "null";
  return fmt::format("{{\"steps\":{{{}}},\"validations\":{{{}}}}}", tables->steps.json(0),
                     tables->validations.json(0));
}

}  // namespace lockstep::live
