// A program started by the bench, with its last output.
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

// Runs in its own process group and gets SIGTERM when this process dies. The destructor ends it.
class Process {
 public:
  explicit Process(const Program& program);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Readable once the process has ended.
  int ended_fd() const { return watch_.get(); }
  bool wait_until(Deadline deadline);
  // SIGTERM, then SIGKILL, to the whole group.
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
