#include "lockstep/train/observe/run_record.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/append_file.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/log.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/train/observe/run_status.h"
#include "lockstep/train/observe/straggler.h"

namespace lockstep::train {
namespace {

using RecordJson = nlohmann::ordered_json;

constexpr auto kBetweenRankFiles = std::chrono::seconds(2);
constexpr std::size_t kMostEarlyEvents = 1000;  // before begin()

// JSON is UTF-8, and has no infinity.
std::string record_text(const RecordJson& json) {
  return json.dump(-1, ' ', false, RecordJson::error_handler_t::replace) + '\n';
}

RecordJson finite(double value) { return std::isfinite(value) ? RecordJson(value) : RecordJson(); }

RecordJson json_of(const std::vector<nn::ClassLine>& lines) {
  RecordJson all = RecordJson::array();
  for (const nn::ClassLine& line : lines) {
    all.push_back({{"name", line.name}, {"count", line.count}, {"bytes", line.bytes()}});
  }
  return all;
}

// {"columns":["forward embedding", ..., "optimizer"],"bands":[{"name":"parameters","bytes":[...]}]}
RecordJson json_of(const nn::MemoryOverSteps& memory, std::span<const std::string> blocks) {
  RecordJson columns = RecordJson::array();
  for (const int step : memory.steps) {
    const bool is_forward = step < memory.blocks;
    const int block = is_forward ? step : 2 * memory.blocks - 1 - step;
    columns.push_back(block < 0 ? "optimizer"
                                : fmt::format("{} {}", is_forward ? "forward" : "backward",
                                              blocks[static_cast<std::size_t>(block)]));
  }
  RecordJson bands = RecordJson::array();
  for (const auto& band : memory.bands) {
    bands.push_back({{"name", band.name}, {"bytes", band.bytes}});
  }
  return {{"columns", std::move(columns)}, {"bands", std::move(bands)}};
}

RecordJson json_of(const RunFacts& facts) {
  RecordJson ranks = RecordJson::array();
  for (const auto& rank : facts.memory_of_ranks) ranks.push_back(json_of(rank));
  return {{"name", facts.name},
          {"model", facts.model},
          {"precision", facts.precision},
          {"hardware", facts.hardware},
          {"data", facts.data},
          {"parameters", facts.parameters},
          {"workers", facts.workers},
          {"strategy", facts.strategy},
          {"batch", facts.batch},
          {"micro_batch", facts.micro_batch},
          {"step_tokens", facts.step_tokens},
          {"step_flops", finite(facts.step_flops)},
          {"peak_flops", finite(facts.peak_flops)},
          {"steps", facts.steps},
          {"first_step", facts.first_step},
          {"memory_bytes", facts.memory_bytes},
          {"memory", json_of(facts.memory)},
          {"memory_of_ranks", ranks},
          {"memory_over_steps", json_of(facts.memory_over_steps, facts.blocks_of_rank)},
          {"config", facts.config}};
}

// The costs of workers since they were last written.
class RankCosts {
 public:
  explicit RankCosts(const RunFacts& facts) : ranks_(facts.workers), stragglers_(facts.work) {}

  void add(const StepMetrics& metrics) {
    stragglers_.add(metrics.costs);
    if (sums_.size() != metrics.costs.size()) sums_.assign(metrics.costs.size(), {});
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const parallel::StepCost& one = metrics.costs[i];
      if (!one.known) continue;
      Sum& sum = sums_[i];
      ++sum.steps;
      sum.cost.compute_seconds += one.compute_seconds;
      sum.cost.communication_seconds += one.communication_seconds;
      sum.cost.exposed_seconds += one.exposed_seconds;
      sum.cost.bytes_sent += one.bytes_sent;
      sum.cost.staleness += one.staleness;
      sum.cost.elapsed_seconds += one.elapsed_seconds;
    }
    ++steps_;
    step_ = metrics.step;
  }

  // And begins again.
  std::string take() {
    RecordJson workers = RecordJson::array();
    for (const Sum& sum : sums_) workers.push_back(worker_json(sum));
    RecordJson json = {{"time", time_of_event()},
                       {"step", step_},
                       {"steps", steps_},
                       {"ranks_of_worker", ranks_per_worker()}};
    if (const auto straggler = stragglers_.straggler()) {
      json["straggler"] = {{"rank", straggler->rank}, {"times", finite(straggler->times)}};
    }
    json["workers"] = std::move(workers);
    sums_.assign(sums_.size(), {});
    steps_ = 0;
    return record_text(json);
  }

 private:
  struct Sum {
    parallel::StepCost cost = {};
    std::int64_t steps = 0;
  };

  static RecordJson worker_json(const Sum& sum) {
    if (sum.steps == 0) return {};
    const auto steps = static_cast<double>(sum.steps);
    const auto ms = [&](double seconds) { return finite(seconds / steps * 1000); };
    return {{"compute_ms", ms(sum.cost.compute_seconds)},
            {"communication_ms", ms(sum.cost.communication_seconds)},
            {"exposed_ms", ms(sum.cost.exposed_seconds)},
            {"step_ms", ms(sum.cost.elapsed_seconds)},
            {"bytes_sent", finite(static_cast<double>(sum.cost.bytes_sent) / steps)},
            {"staleness", finite(sum.cost.staleness / steps)}};
  }

  std::size_t ranks_per_worker() const {
    const auto ranks = static_cast<std::size_t>(ranks_);
    return sums_.empty() || ranks % sums_.size() != 0 ? 1 : ranks / sums_.size();
  }

  int ranks_;
  StragglerWatch stragglers_;
  std::vector<Sum> sums_;
  std::int64_t steps_ = 0;
  std::int64_t step_ = 0;
};

class RunRecord : public RunObserver {
 public:
  void begin(const RunFacts& facts) override {
    folder_ = facts.folder;
    step_ = facts.first_step - 1;
    begin_facts(facts);
    log_ = AppendFile(log_path(folder_));
    end_torn_line();
    append({{"event", "begin"},
            {"first_step", facts.first_step},
            {"steps", facts.steps},
            {"workers", facts.workers},
            {"strategy", facts.strategy},
            {"host", host_name()},
            {"pid_space", pid_space()},
            {"pid", ::getpid()}});
    for (auto& early : std::exchange(early_, {})) append(std::move(early));
    costs_.reset();
    if (facts.workers > 1) costs_.emplace(facts);
    std::error_code none;
    std::filesystem::remove(ranks_path(folder_), none);  // of other ranks, maybe
    written_ = {};
  }

  void step(const StepRecord& record) override {
    step_ = record.metrics.step;
    if (!costs_ || record.metrics.costs.empty()) return;
    costs_->add(record.metrics);
    if (SteadyClock::now() - written_ < kBetweenRankFiles) return;
    written_ = SteadyClock::now();
    write_costs();
  }

  void sample(std::int64_t, const std::string&) override {}
  void notice(const std::string& text) override { message("notice", text); }
  void warning(const std::string& text) override { message("warning", text); }

  void end(const RunEnd& end) override {
    if (costs_ && written_ != SteadyClock::time_point{}) write_costs();
    constexpr std::array kReasons = {"finished", "interrupted", "failed"};
    append({{"event", "end"},
            {"reason", kReasons.at(static_cast<std::size_t>(end.reason))},
            {"message", end.message},
            {"seconds", finite(end.seconds)},
            {"step", step_}});
    log_ = AppendFile();
    end_facts(end);
  }

 private:
  void begin_facts(const RunFacts& facts) {
    const std::int64_t now = std::time(nullptr);
    std::int64_t started = now;
    try {
      if (const auto before = read_status(folder_)) started = before->started;
    } catch (const Error& error) {
      log_warn("{}; it is written again", error.what());
    }
    facts_ = {{"status", "running"},
              {"started", started},
              {"resumed", now},
              {"ended", nullptr},
              {"message", ""}};
    facts_.update(json_of(facts));
    write_file(facts_path(folder_), record_text(facts_));
  }

  void end_facts(const RunEnd& end) {
    constexpr std::array kEnds = {"finished", "stopped", "failed"};
    facts_["status"] = kEnds.at(static_cast<std::size_t>(end.reason));
    facts_["ended"] = std::int64_t{std::time(nullptr)};
    facts_["message"] = end.message;
    try {
      write_file(facts_path(folder_), record_text(facts_));
    } catch (const Error& error) {
      log_warn("{}; it says that the run was killed", error.what());
    }
  }

  void message(const char* event, const std::string& text) {
    RecordJson json = {
        {"time", time_of_event()}, {"event", event}, {"step", step_}, {"text", text}};
    if (log_) return append(std::move(json));
    if (early_.size() < kMostEarlyEvents) early_.push_back(std::move(json));
  }

  void append(RecordJson event) {
    if (!log_) return;
    RecordJson line = {{"time", time_of_event()}};
    line.update(event);  // one from before begin() has its own
    try {
      log_.append(record_text(line));
    } catch (const Error& error) {
      log_warn("{}; events are not recorded from step {} on", error.what(), step_);
      log_ = AppendFile();
    }
  }

  // After a crash the last line may have no end: what follows shall not be a part of it.
  void end_torn_line() {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(log_.path(), none);
    if (none || bytes == 0) return;
    std::ifstream file(log_.path(), std::ios::binary);
    file.seekg(-1, std::ios::end);
    if (file.get() != '\n') log_.append("\n");
  }

  void write_costs() {
    const std::string text = costs_->take();
    try {
      write_file(ranks_path(folder_), text);
    } catch (const Error& error) {
      log_warn("{}; costs of ranks are not recorded from step {} on", error.what(), step_);
      costs_.reset();
    }
  }

  std::filesystem::path folder_;
  RecordJson facts_;  // facts.json
  AppendFile log_;
  std::int64_t step_ = 0;
  std::vector<RecordJson> early_;
  std::optional<RankCosts> costs_;
  SteadyClock::time_point written_;
};

}  // namespace

std::filesystem::path facts_path(const std::filesystem::path& folder) {
  return folder / "facts.json";
}
std::filesystem::path log_path(const std::filesystem::path& folder) { return folder / "log.jsonl"; }
std::filesystem::path ranks_path(const std::filesystem::path& folder) {
  return folder / "ranks.json";
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string pid_space() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
}

double time_of_event() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::unique_ptr<RunObserver> make_run_record() { return std::make_unique<RunRecord>(); }

}  // namespace lockstep::train
