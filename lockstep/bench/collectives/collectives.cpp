#include "lockstep/bench/collectives/collectives.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/collectives/report.h"
#include "lockstep/bench/collectives/streaming.h"
#include "lockstep/comm/native/selection.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kStartDeadline{60};

// One line at the bottom of a terminal, gone when the next real output comes.
class Ticker {
 public:
  void show(const std::string& text) {
    if (!terminal_) return;
    fmt::print(stderr, "\r\033[K{}", text);
    std::fflush(stderr);
  }
  void clear() { show(""); }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) != 0;
};

void print_now(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

using Jobs = std::vector<std::unique_ptr<Job>>;

Jobs start_jobs(const CollectivesPlan& plan, int ranks, const Interrupt& interrupt) {
  const ScratchFolder folder;  // only meeting at start needs it
  const MeetingPoint meeting = open_meeting_point();
  const Site site{plan.command, plan.peers_folder, folder.path(), meeting.name};
  std::vector<JobSpec> specs = lockstep_jobs(site, ranks);
  if (plan.peers) {
    std::vector<std::string> missing;
    const auto peers = peer_jobs(site, ranks, missing);
    specs.insert(specs.end(), peers.begin(), peers.end());
    for (const std::string& line : missing) print_now(fmt::format("left out: {}\n", line));
  }
  std::erase_if(specs, [&](const JobSpec& spec) {
    return std::none_of(plan.ops.begin(), plan.ops.end(), [&](Collective op) {
      const auto all = contenders(plan, op);
      return std::any_of(all.begin(), all.end(), [&](const auto& i) { return i.job == spec.name; });
    });
  });
  if (specs.empty()) {
    fail(ErrorCode::kUnsupported, "none of the implementations in --only can run here");
  }
  Jobs jobs;
  for (const JobSpec& spec : specs) jobs.push_back(std::make_unique<Job>(spec));
  connect_all(jobs, meeting, interrupt, deadline_in(kStartDeadline));
  return jobs;
}

class Run {
 public:
  explicit Run(const CollectivesPlan& plan) : plan_(plan) {}

  bool all() {
    for (const int ranks : plan_.ranks) {
      const int threads =
          std::min<int>(ranks, static_cast<int>(std::thread::hardware_concurrency()));
      Streaming streaming = measure_streaming(std::max(1, threads));
      const Jobs jobs = start_jobs(plan_, ranks, interrupt_);
      report_failures(jobs);
      for (const Collective op : plan_.ops) {
        for (const DType dtype : plan_.dtypes) table(jobs, op, dtype, ranks, streaming);
      }
    }
    if (!plan_.json.empty()) {
      write_file(plan_.json, to_json(results_));
      print_now(fmt::format("\nwrote {} results to {}\n", results_.size(), plan_.json.string()));
    }
    return std::all_of(results_.begin(), results_.end(), [](const Measurement& one) {
      return one.implementation.is_peer || one.correct() || !one.unsupported.empty();
    });
  }

 private:
  void table(const Jobs& jobs, Collective op, DType dtype, int ranks, Streaming& streaming) {
    print_now(table_heading(op, dtype, ranks));
    std::vector<Measurement> rows;
    std::size_t before = 0;
    for (const std::size_t asked : plan_.sizes) {
      const std::size_t bytes = whole_bytes(op, dtype, ranks, asked);
      if (bytes == before) continue;
      before = bytes;
      const Task work{.op = op, .dtype = dtype, .bytes = bytes, .root = plan_.root};
      const auto progress = [&](const Implementation& who, int turn) {
        ticker_.show(fmt::format("{} {}: turn {} of {}, {}", name(op),
                                 format_bytes(static_cast<double>(bytes)), turn, plan_.effort.turns,
                                 who.name));
      };
      const auto one_size =
          measure(contenders(plan_, op), jobs, work, ranks, plan_.effort, interrupt_, progress);
      ticker_.clear();
      print_now(table_lines(one_size));
      report_failures(jobs);
      rows.insert(rows.end(), one_size.begin(), one_size.end());
    }
    print_now(summary(rows));
    report_streaming(rows, streaming);
    results_.insert(results_.end(), rows.begin(), rows.end());
  }

  // Measured before and after, because other work on the machine must not flatter us.
  void report_streaming(const std::vector<Measurement>& rows, Streaming& streaming) {
    if (streaming_share(rows, streaming).empty() && told_streaming_ == streaming.threads) return;
    const Streaming again = measure_streaming(streaming.threads);
    interrupt_.check();
    streaming.copy = std::max(streaming.copy, again.copy);
    streaming.triad = std::max(streaming.triad, again.triad);
    told_streaming_ = streaming.threads;
    print_now(fmt::format(
        "memory streams on {} thread{} at {} (copy), {} (triad), arrays of {}\n{}",
        streaming.threads, streaming.threads == 1 ? "" : "s",
        format_bytes_per_second(streaming.copy), format_bytes_per_second(streaming.triad),
        format_bytes(static_cast<double>(streaming.array_bytes)),
        streaming_share(rows, streaming)));
  }

  void report_failures(const Jobs& jobs) {
    for (const auto& job : jobs) {
      if (job->failure().empty() ||
          std::find(told_.begin(), told_.end(), job.get()) != told_.end()) {
        continue;
      }
      told_.push_back(job.get());
      print_now(fmt::format("FAILED: {}\n", job->failure()));
    }
  }

  const CollectivesPlan& plan_;
  const Interrupt interrupt_;
  Ticker ticker_;
  std::vector<Measurement> results_;
  std::vector<const Job*> told_;
  int told_streaming_ = 0;
};

}  // namespace

bool run_collectives(CollectivesPlan plan) {
  for (const std::string& line : settle(plan)) print_now(fmt::format("left out: {}\n", line));
  if (!plan.json.empty()) check_can_write(plan.json);
  check_algorithms(comm_options());  // as the ranks will read them
  check_emulation(comm_options());
  return Run(plan).all();
}

}  // namespace lockstep::bench
