#include "lockstep/live/report_file.h"

#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/log.h"
#include "lockstep/live/page.h"
#include "lockstep/live/run_follower.h"

namespace lockstep::live {
namespace {

constexpr std::size_t kReportBytesAtOnce = std::size_t{64} << 20;

std::string report_text(RunFollower& run) {
  while (run.poll(kReportBytesAtOnce)) {
  }
  RunFollower::Seen nothing;
  const auto messages = run.news(nothing);
  const auto title = run.visit([&](const RunFollower::View& view) {
    return fmt::format("{} ({})", view.figures.model.empty() ? run.id() : view.figures.model,
                       name(view.state));
  });
  return frozen_page(title, messages);
}

std::string id_of(const std::filesystem::path& folder) {
  const auto path = std::filesystem::absolute(folder).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

class ReportFile : public train::RunObserver {
 public:
  explicit ReportFile(std::chrono::milliseconds between_pages) : between_pages_(between_pages) {}
  ~ReportFile() override { stop(); }

  void begin(const train::RunFacts& facts) override {
    stop();
    folder_ = facts.folder;
    check_can_write(report_path(folder_));
    run_.emplace(id_of(folder_), folder_);
    write_file(report_path(folder_), report_text(*run_));
    stops_ = false;
    // Signals are for the threads that expect them.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { write_again_and_again(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void step(const train::StepRecord&) override {}
  void sample(std::int64_t, const std::string&) override {}
  void notice(const std::string&) override {}
  void warning(const std::string&) override {}

  void end(const train::RunEnd&) override {
    stop();
    write("this run has no report of its end");
  }

 private:
  void stop() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    stopped_.notify_all();
    thread_.join();
  }

  void write_again_and_again() {
    std::unique_lock lock(mutex_);
    bool writes = true;
    while (writes && !stopped_.wait_for(lock, between_pages_, [this] { return stops_; })) {
      lock.unlock();
      writes = write("the report is written again when the run ends");
      lock.lock();
    }
  }

  bool write(const char* otherwise) {
    try {
      write_file(report_path(folder_), report_text(*run_));
      return true;
    } catch (const std::exception& error) {
      log_warn("{}; {}", error.what(), otherwise);
      return false;
    }
  }

  std::chrono::milliseconds between_pages_;
  std::filesystem::path folder_;
  std::optional<RunFollower> run_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stops_ = false;
};

}  // namespace

std::filesystem::path report_path(const std::filesystem::path& folder) {
  return folder / "report.html";
}

std::unique_ptr<train::RunObserver> make_report(std::chrono::milliseconds between_pages) {
  return std::make_unique<ReportFile>(between_pages);
}

std::string report_of(const std::filesystem::path& folder) {
  RunFollower run(id_of(folder), folder);
  return report_text(run);
}

}  // namespace lockstep::live
