// The runs that a page shows: one folder of a run, or all below a folder.
//
// A thread of its own reads what is new twice a second, the runs that changed last first, and looks
// for new runs every few seconds. Folders two levels below are found: experiments/a/run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/live/run_follower.h"

namespace lockstep::live {

class Runs {
 public:
  static constexpr std::size_t kMostRuns = 500;  // those that changed last

  enum class Kind : std::uint8_t {
    kAny,        // what the folder is; Error(kInvalidArgument) where it is neither
    kRunToCome,  // a run's, even if nothing is there so far
  };
  Runs(const std::filesystem::path& path, Kind kind);
  ~Runs();
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;

  using List = std::vector<std::shared_ptr<RunFollower>>;
  // Those that changed last at first; then they keep their order, new ones before them.
  List all() const;
  // By its id; null: there is none.
  std::shared_ptr<RunFollower> find(std::string_view id) const;

  // Starts the thread.
  void follow();
  // Looks for runs, and reads everything that is new.
  void catch_up();

  // Counts how often something was read.
  std::uint64_t version() const;
  // Waits until the version is another than `seen`, or a moment. Returns false at the end.
  bool wait(std::uint64_t seen) const;
  // Ends all waits.
  void stop();

 private:
  void look_for_runs();
  // Returns whether a run has more.
  bool poll_all();

  std::filesystem::path path_;
  bool is_one_run_ = false;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  List runs_;
  std::uint64_t version_ = 1;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace lockstep::live
