// Graceful stop on Ctrl-C and SIGTERM: a run finishes its step, saves, and ends. The same for a
// closed terminal (SIGHUP, unless ignored by nohup) and a closed output pipe (SIGPIPE). A second
// Ctrl-C ends the process at once.
#pragma once

#include <signal.h>

#include <array>

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

}  // namespace lockstep::train
