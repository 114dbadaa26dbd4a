// Injects faults into jobs of `lockstep train`, again and again, and compares what comes out with
// jobs that nobody disturbed. The seed decides which job, fault, rank and moment come in which
// order.
//
//   chaos --minutes 60 --seed 17        as long as that
//   chaos --trials 5                    so many
//   chaos --only 'zero.*killed'         jobs and faults, "<job>: <fault>", that match
#include <fmt/format.h>
#include <sys/mount.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/base/net/socket.h"
#include "tests/chaos/faults.h"
#include "tests/chaos/job.h"
#include "tests/launch/launched.h"

namespace lockstep::chaos {
namespace {
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A job takes some seconds, with every recovery; one that takes this long hangs.
constexpr seconds kPatience{180};
constexpr int kMostStarts = 4;

std::vector<Kind> kinds() {
  const std::string one_by_one = "train.micro_batch_size=1 ";
  const std::string tree = one_by_one + "parallel.reduction=tree ";
  const std::string servers = "parallel.strategy=parameter_server ";
  const std::string mirrored = "survive.mirror=true checkpoint.every=0 ";
  return {
      {"ddp", ""},
      {"ddp, tree", tree},
      {"ddp over TCP", "comm.transport=tcp"},
      {"ddp over TCP, encrypted", "comm.transport=tcp comm.encrypt=on"},
      {"ddp without checkpoints, bf16", "checkpoint.every=0 train.precision=bf16"},
      {"zero 1", "parallel.zero=1"},
      {"zero 2", "parallel.zero=2"},
      {"zero 3", "parallel.zero=3"},
      {"zero 1, mirrored", mirrored + "parallel.zero=1"},
      {"zero 2, mirrored", mirrored + "parallel.zero=2"},
      {"zero 3, mirrored", mirrored + "parallel.zero=3"},
      {"servers, bsp", servers},
      {"servers, bsp, mirrored", mirrored + servers + "parallel.servers=4"},
      {"one server, bsp, mirrored", mirrored + servers},
      {"servers, asp", servers + "parallel.consistency=asp", Promise::kLaterSteps},
      {"servers, ssp", servers + "parallel.consistency=ssp", Promise::kLaterSteps},
      {"servers, asp, mirrored", mirrored + servers + "parallel.consistency=asp parallel.servers=4",
       Promise::kLaterSteps},
      {"servers, ssp, mirrored", mirrored + servers + "parallel.consistency=ssp parallel.servers=2",
       Promise::kLaterSteps},
      {"pipeline 2", one_by_one + "parallel.pipeline=2"},
      {"tensor 2", one_by_one + "parallel.tensor=2"},
      {"context 2", one_by_one + "parallel.context=2"},
      {"expert 2", one_by_one + "parallel.expert=2 model.family=mixtral model.experts=4"},
      {"elastic ddp", one_by_one, Promise::kNearLosses, 1, false, true},
      {"elastic zero 2, mirrored", one_by_one + mirrored + "parallel.zero=2", Promise::kNearLosses,
       1, false, true},
      {"elastic nodes, ddp", one_by_one, Promise::kNearLosses, 2, false, true},
      {"two nodes, ddp", "", Promise::kSameBits, 2},
      {"two nodes, zero 2, mirrored", mirrored + "parallel.zero=2 comm.emulated_nodes=2",
       Promise::kSameBits, 2},
      {"two hosts, ddp", tree, Promise::kSameBits, 2, true},
      {"two hosts, zero 2, mirrored", tree + mirrored + "parallel.zero=2", Promise::kSameBits, 2,
       true},
  };
}

struct Results {
  std::vector<std::string> losses;
  std::map<std::string, std::string> states;
};

struct Outcome {
  std::vector<std::string> wrong;  // sentences; none: all is as it should be
  bool hung = false;
  bool left_something = false;
  std::optional<double> recovery;  // seconds from the fault to the next step
  std::string what;                // exactly was done
};

struct Row {
  int trials = 0, wrong = 0, hung = 0, left = 0;
  double recovery = 0;

  void add(const Outcome& outcome) {
    ++trials;
    wrong += outcome.wrong.empty() || outcome.hung || outcome.left_something ? 0 : 1;
    hung += outcome.hung ? 1 : 0;
    left += outcome.left_something ? 1 : 0;
    recovery = std::max(recovery, outcome.recovery.value_or(0));
  }
};

std::set<std::string> shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator("/dev/shm"))
    names.insert(entry.path().filename());
  return names;
}

class Chaos {
 public:
  Chaos(Place place, unsigned seed) : place_(std::move(place)), random_(seed) {}

  const Results& undisturbed(const Kind& kind) {
    const auto known = undisturbed_.find(kind.name);
    if (known != undisturbed_.end()) return known->second;
    const fs::path folder = place_.folder / "undisturbed";
    Results results;
    {
      Job job(kind, place_, folder);
      job.start();
      if (!testing::eventually([&] { return job.has_ended(); }, kPatience) || !job.ended_well()) {
        throw std::runtime_error(
            fmt::format("the undisturbed job fails: {}\n{}", kind.name, job.logs()));
      }
      results = {job.losses(), job.states()};
    }
    // Where workers do not wait for each other, the leader reports the steps that it took part in.
    const bool has_all_steps =
        kind.promise == Promise::kLaterSteps || results.losses.size() == Job::kSteps;
    if (results.states.empty() || !has_all_steps) {
      throw std::runtime_error(fmt::format("the undisturbed job is incomplete: {}", kind.name));
    }
    remove_all_of(folder);
    return undisturbed_[kind.name] = std::move(results);
  }

  Outcome try_once(const Kind& kind, const Fault& fault) {
    const Results& whole = undisturbed(kind);
    const fs::path base = fault.needs_small_disk ? place_.small_disk : place_.folder;
    const fs::path folder = base / fmt::format("trial{}", trials_++);
    const auto step = 5 + static_cast<std::int64_t>(random_() % (Job::kSteps / 2));
    const std::chrono::microseconds into(random_() % 5000);
    const std::set<std::string> segments = shared_memory();

    Outcome outcome;
    std::string logs;
    {
      Job job(kind, place_, folder);
      job.start();
      if (!testing::eventually([&] { return job.last_step() >= step || job.has_ended(); },
                               kPatience) ||
          job.has_ended()) {
        outcome.wrong.push_back(
            fmt::format("it did not come to step {} (exit codes {})", step, job.exit_codes()));
      } else {
        std::this_thread::sleep_for(into);  // a random moment within a step
        disturb(job, fault, outcome);
        compare(job, kind, whole, outcome);
        look_for_remains(job, segments, outcome);
      }
      logs = job.logs();
    }
    outcome.what = fmt::format("after step {} and {} us, {}", step, into.count(), outcome.what);
    if (outcome.wrong.empty()) {
      remove_all_of(folder);
    } else {
      keep_logs(folder, logs);
    }
    return outcome;
  }

  Random& random() { return random_; }
  const Place& place() const { return place_; }

 private:
  void disturb(Job& job, const Fault& fault, Outcome& outcome) {
    const std::int64_t before = job.last_step();
    const Clock::time_point begin = Clock::now();
    outcome.what = fault.inject(job, random_);
    int starts = 1;
    while (true) {
      // Others may have been a step further than the metrics when it happened.
      if (!outcome.recovery && job.last_step() > before + 1) {
        outcome.recovery = std::chrono::duration<double>(Clock::now() - begin).count();
      }
      if (job.has_ended()) {
        if (job.ended_well()) return;
        if (!fault.repair || starts++ == kMostStarts) {
          outcome.wrong.push_back(fmt::format("it ended with {}", job.exit_codes()));
          return;
        }
        fault.repair(job);
        job.start();
      }
      if (Clock::now() - begin > kPatience) {
        outcome.hung = true;
        outcome.wrong.push_back(fmt::format("it hangs after step {}", job.last_step()));
        return;
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
  }

  static void compare(const Job& job, const Kind& kind, const Results& whole, Outcome& outcome) {
    if (!outcome.wrong.empty()) return;
    const Results got{job.losses(), job.states()};
    if (got.states.empty()) outcome.wrong.emplace_back("there is no checkpoint of the last step");
    switch (kind.promise) {
      case Promise::kSameBits:
        if (got.losses != whole.losses) {
          outcome.wrong.emplace_back("losses differ, or steps are missing or there twice");
        }
        if (got.states != whole.states) {
          outcome.wrong.emplace_back("the states of the last checkpoint differ");
        }
        break;
      case Promise::kNearLosses:
        if (!are_near(got.losses, whole.losses)) {
          outcome.wrong.emplace_back("losses differ, or steps are missing or there twice");
        }
        break;
      case Promise::kLaterSteps:
        if (!ascends(got.losses)) {
          outcome.wrong.emplace_back("steps are there twice, or the last one is missing");
        }
        break;
    }
  }

  // Lines of metrics.jsonl, up to the loss.
  static std::int64_t step_of(const std::string& line) {
    return std::atoll(line.c_str() + std::string_view("{\"step\":").size());
  }
  static double loss_of(const std::string& line) {
    constexpr std::string_view kKey = "\"loss\":";
    const auto at = line.find(kKey);
    return at == std::string::npos ? NAN : std::atof(line.c_str() + at + kKey.size());
  }

  static bool are_near(const std::vector<std::string>& got, const std::vector<std::string>& want) {
    return std::ranges::equal(got, want, [](const std::string& one, const std::string& other) {
      return step_of(one) == step_of(other) && std::abs(loss_of(one) - loss_of(other)) <= 1e-4;
    });
  }

  static bool ascends(const std::vector<std::string>& lines) {
    std::int64_t last = 0;
    for (const std::string& line : lines) {
      if (step_of(line) <= last) return false;
      last = step_of(line);
    }
    return last == Job::kSteps;
  }

  static void look_for_remains(const Job& job, const std::set<std::string>& segments,
                               Outcome& outcome) {
    std::vector<std::string> remains;
    if (!outcome.hung &&
        !testing::eventually([&] { return job.processes().empty(); }, seconds(20))) {
      remains.push_back(fmt::format("{} processes", job.processes().size()));
    }
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(job.folder(), error)) {
      if (entry.path().filename().string().find(".tmp") != std::string::npos) {
        remains.push_back(entry.path().string());
      }
    }
    for (const std::string& name : shared_memory()) {
      if (!segments.contains(name)) remains.push_back("/dev/shm/" + name);
    }
    if (remains.empty()) return;
    outcome.left_something = true;
    for (const std::string& one : remains) outcome.wrong.push_back("it left " + one);
  }

  void keep_logs(const fs::path& folder, const std::string& logs) const {
    const fs::path kept = fs::temp_directory_path() / ("lockstep-" + folder.filename().string());
    std::error_code error;
    fs::remove_all(kept, error);
    fs::create_directories(kept, error);
    fs::copy(folder, kept / "run", fs::copy_options::recursive, error);
    std::ofstream(kept / "log.txt") << logs;
    fmt::print("  its folder and its log are in {}\n", kept.string());
    remove_all_of(folder);
  }

  // A folder, and the files beside it whose names begin alike.
  static void remove_all_of(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder.parent_path())) {
      const std::string name = entry.path().filename();
      if (name == folder.filename() || name.starts_with(folder.filename().string() + ".")) {
        fs::remove_all(entry.path());
      }
    }
    fs::remove(folder.parent_path() / "ballast");
  }

  Place place_;
  Random random_;
  std::map<std::string, Results> undisturbed_;
  int trials_ = 0;
};

void print_table(const char* of, const std::map<std::string, Row>& rows) {
  fmt::print(
      "\n| {} | trials | wrong results | hangs | left-overs | next step after, at most |\n"
      "|---|---|---|---|---|---|\n",
      of);
  for (const auto& [name, row] : rows) {
    fmt::print("| {} | {} | {} | {} | {} | {:.1f} s |\n", name, row.trials, row.wrong, row.hung,
               row.left, row.recovery);
  }
}

// Unmounts it in the end.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& at) : at_(at) {
    fs::create_directory(at);
    is_there_ = ::mount("none", at.c_str(), "tmpfs", 0, "size=32m") == 0;
  }
  ~SmallDisk() {
    if (is_there_) ::umount2(at_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  fs::path path() const { return is_there_ ? at_ : fs::path(); }

 private:
  fs::path at_;
  bool is_there_ = false;
};

struct Trial {
  const Kind* kind;
  const Fault* fault;
  std::string name() const { return kind->name + ": " + fault->name; }
};

struct Options {
  double minutes = 0;
  int trials = 0;
  unsigned seed = 17;
  std::string only;
};

int run(const Options& options) {
  const ScratchFolder scratch;
  const SmallDisk disk(scratch.path() / "disk");
  std::optional<testing::Hosts> hosts;
  if (testing::Hosts::allowed()) {
    hosts.emplace(2);
    if (!hosts->ready()) hosts.reset();
  }
  std::ofstream text(scratch.path() / "text.txt");
  for (int i = 0; i < 300; ++i) text << "it was the best of times " << i << ", it was the worst\n";
  text.close();

  Chaos chaos({.folder = scratch.path(),
               .small_disk = disk.path(),
               .hosts = hosts ? &*hosts : nullptr,
               .address = format_host_port(listen_tcp({"127.0.0.1", 0}).address)},
              options.seed);
  std::vector<std::string> missing;
  const std::vector<Kind> all_kinds = kinds();
  const std::vector<Fault> all_faults = faults(chaos.place(), missing);
  const std::regex only(options.only);
  std::vector<Trial> all;
  for (const Kind& kind : all_kinds) {
    for (const Fault& fault : all_faults) {
      const Trial trial{&kind, &fault};
      const bool can_be = fault.fits(kind) && (!kind.has_hosts || hosts);
      if (can_be && std::regex_search(trial.name(), only)) all.push_back(trial);
    }
  }
  if (all.empty()) {
    fmt::print(stderr, "chaos: nothing matches --only \"{}\"\n", options.only);
    return 2;
  }
  fmt::print("seed {}, {} pairs of a job and a fault\n", options.seed, all.size());
  for (const std::string& one : missing) fmt::print("not possible here: {}\n", one);

  std::map<std::string, Row> by_fault, by_kind;
  int failed = 0;
  const Clock::time_point begin = Clock::now();
  const auto is_over = [&](int done) {
    return options.trials > 0 ? done >= options.trials
                              : Clock::now() - begin >=
                                    std::chrono::duration<double, std::ratio<60>>(options.minutes);
  };
  for (int done = 0; !is_over(done); ++done) {
    // All pairs once before any comes again.
    const std::size_t at = static_cast<std::size_t>(done) % all.size();
    if (at == 0) std::ranges::shuffle(all, chaos.random());
    const Trial& trial = all[at];
    const Outcome outcome = chaos.try_once(*trial.kind, *trial.fault);
    by_fault[trial.fault->name].add(outcome);
    by_kind[trial.kind->name].add(outcome);
    fmt::print("{:4} {}, {}: {}\n", done + 1, trial.name(), outcome.what,
               outcome.wrong.empty()
                   ? (outcome.recovery ? fmt::format("next step after {:.1f} s", *outcome.recovery)
                                       : std::string("well"))
                   : fmt::format("WRONG: {}", fmt::join(outcome.wrong, "; ")));
    std::fflush(stdout);
    failed += outcome.wrong.empty() ? 0 : 1;
  }
  print_table("fault", by_fault);
  print_table("job", by_kind);
  fmt::print("\n{} of {} trials went wrong\n", failed,
             std::accumulate(by_kind.begin(), by_kind.end(), 0,
                             [](int sum, const auto& one) { return sum + one.second.trials; }));
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::chaos

int main(int argc, char** argv) {
  lockstep::chaos::Options options;
  CLI::App app(
      "Injects faults into training jobs and compares their results with undisturbed ones.");
  app.add_option("--minutes", options.minutes, "How long")->check(CLI::PositiveNumber);
  app.add_option("--trials", options.trials, "How many, in place of --minutes")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "Decides jobs, faults, ranks and moments")
      ->capture_default_str();
  app.add_option("--only", options.only, "A regular expression for \"<job>: <fault>\"");
  CLI11_PARSE(app, argc, argv);
  if (options.minutes == 0 && options.trials == 0) options.minutes = 60;
  try {
    return lockstep::chaos::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "chaos: {}\n", error.what());
    return 1;
  }
}
