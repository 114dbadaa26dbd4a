#include "lockstep/bench/live/bench_live.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/base/text/number.h"
#include "lockstep/bench/interrupt.h"
#include "lockstep/bench/live/page_reader.h"
#include "lockstep/bench/process.h"
#include "lockstep/bench/statistics.h"
#include "lockstep/live/line_tail.h"
#include "lockstep/train/observe/metrics_file.h"
#include "lockstep/train/observe/metrics_line.h"
#include "lockstep/train/observe/run_record.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr double kMostSeconds = 2;  // to load a run, and behind one
constexpr double kMostSlowdown = 0.01;
constexpr auto kToStart = 60s;
constexpr std::size_t kTailBytes = std::size_t{1} << 20;

// `lockstep watch`; beside a run with the lower priority that it has there.
class ServedPage {
 public:
  enum class Beside { kNothing, kARun };

  ServedPage(const LiveBench& bench, const fs::path& run, Beside beside)
      : process_({.arguments = {"nice", "-n", beside == Beside::kARun ? "10" : "0",
                                bench.command.string(), "watch", run.string(), "--port", "0"},
                  .environment = {}}) {}

  // When it has printed its link.
  std::string link(const Interrupt& interrupt) {
    const Deadline deadline = deadline_in(kToStart);
    while (true) {
      const std::string words = process_.last_words();
      if (const auto at = words.find("http://"); at != std::string::npos) {
        return words.substr(at, words.find('\n', at) - at);
      }
      interrupt.check();
      if (process_.wait_until(deadline_in(1ms)) || has_passed(deadline)) {
        fail(ErrorCode::kSystem, "lockstep watch prints no link: {}", words);
      }
    }
  }

  // Of a core, since it began.
  double cpu_seconds() const {
    std::ifstream file(fmt::format("/proc/{}/stat", process_.pid()));
    const std::string text(std::istreambuf_iterator<char>(file), {});
    // "123 (name) S ...": user and system time are the 12th and 13th behind the name.
    std::istringstream fields(text.substr(std::min(text.rfind(')'), text.size() - 1) + 1));
    std::vector<std::string> values(13);
    for (std::string& value : values) fields >> value;
    return (std::stod(values[11]) + std::stod(values[12])) /
           static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

 private:
  Process process_;
};

// ---- load

train::StepRecord long_run_step(std::int64_t step, int ranks) {
  const double noise = uniform_at(17, static_cast<std::uint64_t>(step), 0);
  train::StepRecord record;
  record.metrics = {.step = step,
                    .loss = 2 + 6 / (1 + 1e-3 * static_cast<double>(step)) + 0.1 * noise,
                    .gradient_norm = 0.7 + 0.3 * noise,
                    .rate = 6e-4,
                    .tokens = 524'288,
                    .seconds = 0.086 + 1e-3 * noise};
  if (ranks > 1) {
    record.workers = train::WorkerCosts{.compute_seconds = 0.07 + 1e-3 * noise,
                                        .communication_seconds = 0.03 + 1e-3 * noise,
                                        .exposed_seconds = 0.01 * noise,
                                        .longest_exposed_seconds = 0.02 * noise,
                                        .bytes_sent = 497'759'232,
                                        .slowest_rank = static_cast<int>(step % ranks),
                                        .slowest_seconds = 0.075};
  }
  if (step % 1000 == 0) record.validation_loss = record.metrics.loss + 0.1;
  record.memory_bytes = std::uint64_t{3} << 30;
  record.data_seconds = 2e-4;
  return record;
}

void write_long_run(const LiveBench& bench, const fs::path& folder) {
  fs::create_directory(folder);
  std::ofstream file(train::metrics_path(folder), std::ios::binary);
  for (std::int64_t step = 1; step <= bench.steps; ++step) {
    file << train::metrics_line(long_run_step(step, bench.ranks), false);
  }
  file.close();
  if (!file) fail(ErrorCode::kSystem, "cannot write {}", train::metrics_path(folder).string());
  train::RunFacts facts;
  facts.folder = folder;
  facts.model = "made up";
  facts.workers = bench.ranks;
  facts.steps = bench.steps;
  const auto record = train::make_run_record();
  record->begin(facts);
  record->end({});
}

double load_once(const LiveBench& bench, const fs::path& folder, const Interrupt& interrupt) {
  const auto begin = SteadyClock::now();
  ServedPage page(bench, folder, ServedPage::Beside::kNothing);
  PageReader reader(page.link(interrupt));
  const Deadline deadline = deadline_in(600s);
  while (true) {
    interrupt.check();
    const auto shown = reader.next(deadline_in(100ms));
    if (shown && shown->rows == bench.steps) return seconds_since(begin);
    if (has_passed(deadline)) fail(ErrorCode::kTimeout, "the page does not show all steps");
  }
}

struct Load {
  std::uintmax_t bytes = 0;
  std::vector<double> seconds;  // sorted
};

Load measure_load(const LiveBench& bench, const fs::path& folder, const Interrupt& interrupt) {
  write_long_run(bench, folder);
  Load load{.bytes = fs::file_size(train::metrics_path(folder)), .seconds = {}};
  for (int i = 0; i < bench.loads; ++i) {
    load.seconds.push_back(load_once(bench, folder, interrupt));
  }
  std::ranges::sort(load.seconds);
  fs::remove_all(folder);
  return load;
}

// ---- train

// The steps of a running job, as they come.
class StepTail {
 public:
  explicit StepTail(const fs::path& run) : tail_(train::metrics_path(run)) {}

  void poll() {
    tail_.poll(kTailBytes, {.begins_again = [] {},
                            .line =
                                [this](std::string_view line, std::uint64_t) {
                                  const auto record = train::parse_metrics_line(line);
                                  if (!record) return;
                                  step_ = record->metrics.step;
                                  came_.push_back({step_, SteadyClock::now()});
                                }});
  }
  std::int64_t step() const { return step_; }

  // How long ago the first step after `shown` came, of which `now` is shown; forgets those up to
  // it.
  std::optional<double> behind(std::int64_t now) {
    std::optional<double> seconds;
    while (!came_.empty() && came_.front().step <= now) {
      if (!seconds) seconds = seconds_since(came_.front().when);
      came_.pop_front();
    }
    return seconds;
  }
  void forget() { came_.clear(); }

 private:
  struct Came {
    std::int64_t step;
    SteadyClock::time_point when;
  };
  live::LineTail tail_;
  std::int64_t step_ = 0;
  std::deque<Came> came_;
};

// Steps per second of windows side by side, and how far the page was behind.
struct Train {
  std::vector<double> without, with;
  std::vector<double> behind;      // sorted
  std::vector<double> page_cores;  // that the page's process kept busy, of each window with it

  double slowdown() const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < with.size(); ++i) ratios.push_back(without[i] / with[i] - 1);
    std::ranges::sort(ratios);
    return quantile(ratios, 0.5);
  }
};

class TrainingBeside {
 public:
  TrainingBeside(const LiveBench& bench, const fs::path& folder, const Interrupt& interrupt)
      : bench_(bench),
        run_(folder / "run"),
        interrupt_(interrupt),
        job_(job(folder)),
        steps_(run_) {
    const Deadline deadline = deadline_in(kToStart);
    while (steps_.step() < 100) {
      interrupt_.check();
      steps_.poll();
      if (job_.wait_until(deadline_in(5ms)) || has_passed(deadline)) {
        fail(ErrorCode::kAborted, "the job does not train: {}", job_.last_words());
      }
    }
  }

  Train measure() {
    Train result;
    for (int i = 0; i < bench_.windows; ++i) {
      const bool with = i % 4 == 1 || i % 4 == 2;
      (with ? result.with : result.without).push_back(window(with, result));
    }
    std::ranges::sort(result.behind);
    return result;
  }

 private:
  Program job(const fs::path& folder) const {
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 3000; ++i) text << "it was the best of times " << i << ", the worst\n";
    Program program{
        .arguments = {bench_.command.string(), "train",
                      "data.text=" + (folder / "text.txt").string(), "run.dir=" + run_.string(),
                      "data.tokenizer=byte", "model.layers=2", "model.hidden=32", "model.heads=2",
                      "train.seq_len=16", "train.micro_batch_size=1", "train.precision=f32",
                      "train.threads=1", "train.validate_every=0", "train.validate_batches=1",
                      "checkpoint.every=0", "train.steps=1000000000", "--ranks",
                      std::to_string(bench_.ranks)},
        .environment = {}};
    program.arguments.insert(program.arguments.end(), bench_.settings.begin(),
                             bench_.settings.end());
    return program;
  }

  // Returns steps per second.
  double window(bool with, Train& result) {
    std::optional<ServedPage> page;
    std::optional<PageReader> reader;
    if (with) {
      page.emplace(bench_, run_, ServedPage::Beside::kARun);
      reader.emplace(page->link(interrupt_));
      while (!reader->next(deadline_in(kToStart))) interrupt_.check();
    }
    // What begins or ends with a page is over.
    follow(1s, reader, nullptr);
    steps_.forget();
    const double cpu_before = page ? page->cpu_seconds() : 0;
    const std::int64_t first = steps_.step();
    const auto begin = SteadyClock::now();
    follow(std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::duration<double>(bench_.seconds)),
           reader, &result.behind);
    const double seconds = seconds_since(begin);
    if (page) result.page_cores.push_back((page->cpu_seconds() - cpu_before) / seconds);
    return static_cast<double>(steps_.step() - first) / seconds;
  }

  void follow(std::chrono::milliseconds time, std::optional<PageReader>& reader,
              std::vector<double>* behind) {
    const Deadline deadline = deadline_in(time);
    while (!has_passed(deadline)) {
      interrupt_.check();
      steps_.poll();
      if (!reader) {
        if (job_.wait_until(deadline_in(5ms))) break;
        continue;
      }
      const auto shown = reader->next(deadline_in(5ms));
      if (!shown) continue;
      steps_.poll();
      const auto seconds = steps_.behind(shown->step);
      if (seconds && behind != nullptr) behind->push_back(*seconds);
    }
    if (!job_.wait_until(Deadline::min())) return;
    fail(ErrorCode::kAborted, "the job has ended: {}", job_.last_words());
  }

  const LiveBench& bench_;
  fs::path run_;
  const Interrupt& interrupt_;
  Process job_;
  StepTail steps_;
};

// ---- results

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return quantile(values, 0.5);
}

const char* verdict_of(bool met) { return met ? "met" : "MISSED"; }

bool report_load(const LiveBench& bench, const Load& load, nlohmann::ordered_json& json) {
  const double seconds = quantile(load.seconds, 0.5);
  const bool met = seconds <= kMostSeconds;
  fmt::print(
      "load   {} steps of {} ranks, {:.0f} MB: {:.2f} s (median of {}, at most {:.2f} s); bar "
      "{} s: {}\n",
      format_count(static_cast<std::uint64_t>(bench.steps)), bench.ranks,
      static_cast<double>(load.bytes) / 1e6, seconds, load.seconds.size(), load.seconds.back(),
      kMostSeconds, verdict_of(met));
  json["load"] = {{"steps", bench.steps}, {"bytes", load.bytes}, {"seconds", load.seconds}};
  return met;
}

bool report_train(const LiveBench& bench, const Train& train, nlohmann::ordered_json& json) {
  const double slowdown = train.slowdown();
  const bool cheap = slowdown <= kMostSlowdown;
  fmt::print(
      "train  {} ranks, {} windows of {:g} s: {:.1f} steps/s without the page, {:.1f} with it; "
      "{:.2f} % slower (median of neighbours); bar {:g} %: {}\n",
      bench.ranks, bench.windows, bench.seconds, median_of(train.without), median_of(train.with),
      100 * slowdown, 100 * kMostSlowdown, verdict_of(cheap));
  fmt::print("       the page keeps {:.2f} % of a core busy\n", 100 * median_of(train.page_cores));
  const bool follows = !train.behind.empty() && train.behind.back() <= kMostSeconds;
  if (!train.behind.empty()) {
    fmt::print(
        "       the page is {:.2f} s behind (median of {} updates, at most {:.2f} s); bar {} "
        "s: {}\n",
        quantile(train.behind, 0.5), train.behind.size(), train.behind.back(), kMostSeconds,
        verdict_of(follows));
  }
  json["train"] = {{"ranks", bench.ranks},           {"steps_per_s_without", train.without},
                   {"steps_per_s_with", train.with}, {"slowdown", slowdown},
                   {"page_cores", train.page_cores}, {"behind_s", train.behind}};
  return cheap && follows;
}

}  // namespace

bool run_live(const LiveBench& bench) {
  const Interrupt interrupt;
  const ScratchFolder folder;
  nlohmann::ordered_json json;
  bool met = true;
  const auto asked = [&](std::string_view name) {
    return std::ranges::find(bench.cases, name) != bench.cases.end();
  };
  if (asked("load")) {
    met = report_load(bench, measure_load(bench, folder.path() / "long", interrupt), json) && met;
  }
  if (asked("train")) {
    met =
        report_train(bench, TrainingBeside(bench, folder.path(), interrupt).measure(), json) && met;
  }
  if (!bench.json.empty()) write_file(bench.json, json.dump(2) + "\n");
  return met;
}

}  // namespace lockstep::bench
