// Graceful stop on Ctrl-C and SIGTERM: a run finishes its step, saves, and ends. The same for a
// closed terminal (SIGHUP, unless ignored by nohup) and a closed output pipe (SIGPIPE). A second
// Ctrl-C ends the process at once.
#pragma once

#include <signal.h>

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::train {

// During its lifetime the signals only set came(); with `tells` the first one also prints what will
// happen. One per process at a time.
class StopSignal {
 public:
  explicit StopSignal(bool tells = false);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool came() const;
  // "SIGINT"; empty where none came.
  const char* name() const;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  std::array<struct sigaction, kSignals.size()> before_;
};

// During its lifetime the signals of a StopSignal end the process at once with `exit_code`, because
// there is nothing to save yet. With `tells` the process prints that.
class StartUp {
 public:
  StartUp(const StopSignal& signals, int exit_code, bool tells);
  ~StartUp();
  StartUp(const StartUp&) = delete;
  StartUp& operator=(const StartUp&) = delete;
};

// During its lifetime the signals of a StopSignal end the process soon, with `exit_code`, even
// where the code in its scope does not check came(). A thread of its own waits a moment for the
// scope to end, then calls `clean_up`, prints a message and exits. The scope continues meanwhile.
class StopDeadline {
 public:
  StopDeadline(const StopSignal& signals, int exit_code, std::function<void()> clean_up);
  ~StopDeadline();
  StopDeadline(const StopDeadline&) = delete;
  StopDeadline& operator=(const StopDeadline&) = delete;

 private:
  void watch();

  const StopSignal& signals_;
  int exit_code_;
  std::function<void()> clean_up_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread thread_;
};

}  // namespace lockstep::train
