// A program that the bench has started, its output kept for when it fails.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/deadline.h"

namespace lockstep::bench {

struct Program {
  std::vector<std::string> arguments;  // the program first, found as a shell would
  std::vector<std::pair<std::string, std::string>> environment;  // on top of ours
};

// Runs in a process group of its own; is asked to end (SIGTERM) when this process dies, whatever
// way. Ending it is the destructor's work at the latest.
class Process {
 public:
  explicit Process(const Program& program);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Readable once the process has ended.
  int ended_fd() const { return watch_.get(); }
  bool wait_until(Deadline deadline);
  // SIGTERM, then, for those who will not hear, SIGKILL to the whole group.
  void end();

  // "exit code 3", "SIGSEGV"; only after it has ended.
  std::string how_it_ended() const;
  // The last lines it and its children wrote to stdout or stderr.
  std::string last_words() const;

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
  UniqueFd output_;
  UniqueFd watch_;
};

}  // namespace lockstep::bench
