// One rank of the job: a process, what it writes, and how it ended.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/launch/exit_status.h"
#include "lockstep/launch/output.h"
#include "lockstep/launch/spawn.h"

namespace lockstep {

class RankProcess {
 public:
  static constexpr std::size_t kMostLastWords = 10;  // lines

  // Starts the process; its output goes to the ports, every line after the port's prefix. A line of
  // its standard error with `error_prefix` (unless that is empty), and indented lines after it, are
  // its error if no other line follows; they are held back until then.
  struct Sink {
    OutputPort* port;
    std::string prefix;
    bool is_live = false;  // text that ends with a carriage return goes out at once
  };
  RankProcess(int rank, SpawnRequest request, Sink output, Sink error,
              std::string error_prefix = "");

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  bool has_ended() const { return status_.has_value(); }
  const std::optional<ExitStatus>& status() const { return status_; }
  void set_status(ExitStatus status) { status_ = status; }
  std::string describe() const;  // "rank 2 (pid 123) was killed by SIGKILL"

  // Sends a signal to the process, or to it and all in its process group; not after its end.
  // Stopped processes are continued, so that they receive a request to end.
  void signal_process(int signal) const;
  void signal_group(int signal) const;
  bool is_stopped() const;  // by SIGSTOP, say

  // The streams that have not ended, to be polled for POLLIN. A stream whose port is full is left
  // out, so that a rank that writes faster than the terminal has to wait.
  std::vector<int> readable_fds() const;
  void read_from(int fd);
  // Reads what is in both pipes now. / Emits what follows the last newline.
  void drain();
  void finish_lines();

  // Its last output, if that is an error. / Prints it, or drops it.
  const std::optional<std::string>& error() const { return error_; }
  void tell_error();
  void drop_error() { error_.reset(); }

  // The ranks that it blames in its last line (launch/blame.h).
  std::vector<int> blamed() const;
  // The last lines of its standard error, including one that is unfinished.
  std::vector<std::string> last_words() const;

 private:
  struct Stream {
    UniqueFd fd;
    Sink sink;
    LineCutter lines;
    bool is_error = false;
  };

  bool read_once(Stream& stream);  // whether there may be more
  void emit(Stream& stream, std::string_view line);
  // Up to the last carriage return, where the sink is live; returns the rest.
  static std::string_view emit_live(const Stream& stream, std::string_view text);

  int rank_;
  pid_t pid_ = 0;
  std::optional<ExitStatus> status_;
  Stream streams_[2];
  std::string error_prefix_;
  std::optional<std::string> error_;
  std::deque<std::string> last_words_;
};

}  // namespace lockstep
