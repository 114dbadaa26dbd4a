// One rank of the job, or a spare: a process, what it writes, and how it ended.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/launch/exit_status.h"
#include "lockstep/launch/output.h"
#include "lockstep/launch/rank_link.h"
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
    // Receives every line, with the rank; unset: nobody does.
    std::function<void(std::optional<int> rank, std::string_view line)> hear = {};
  };
  static constexpr int kSpare = -1;  // as a rank
  // With a link the rank finds its end of it in its environment.
  RankProcess(int rank, SpawnRequest request, Sink output, Sink error,
              std::string error_prefix = "", std::optional<RankLink> link = std::nullopt);

  int rank() const { return rank_; }
  // In the generation that begins; whether what it rewrites goes out at once (Sink).
  void set_rank(int rank, bool is_live) {
    rank_ = rank;
    streams_[1].sink.is_live = is_live;
  }
  // Its share of this node's CPUs.
  int cpu_share() const { return cpu_share_; }
  void set_cpu_share(int share) { cpu_share_ = share; }
  pid_t pid() const { return pid_; }
  bool has_ended() const { return status_.has_value(); }
  const std::optional<ExitStatus>& status() const { return status_; }
  void set_status(ExitStatus status) { status_ = status; }
  // "rank 2 (pid 123) was killed by SIGKILL" / "rank 2 on node 1 (data 1, tensor 0; pid 123)"
  std::string describe() const;
  std::string name(std::string_view on_node = "") const;
  // What it is to the job (LaunchOptions::describe_rank).
  void set_place(std::string place) { place_ = std::move(place); }

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

  // Its link; nullptr: it has none. / What it last reported through that: it waits for the next
  // generation, because of the text; it ends with an error that would come again.
  RankLink* link() { return link_ ? &*link_ : nullptr; }
  const std::optional<std::string>& lost() const { return lost_; }
  void set_lost(std::optional<std::string> why) { lost_ = std::move(why); }
  bool is_final() const { return is_final_; }
  void set_final() { is_final_ = true; }
  // Its end was its own, or it did not come back: it did not end because of others.
  bool has_failed() const { return has_failed_; }
  void set_failed() { has_failed_ = true; }
  // It was asked to end, as the job does not need it.
  bool is_released() const { return is_released_; }
  void release() {
    is_released_ = true;
    if (link_) link_->send_end();
  }
  // Whether it neither has ended nor waits.
  bool is_busy() const { return !has_ended() && !lost_; }

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
  std::string place_;
  pid_t pid_ = 0;
  std::optional<ExitStatus> status_;
  std::optional<RankLink> link_;
  std::optional<std::string> lost_;
  bool is_final_ = false;
  bool has_failed_ = false;
  bool is_released_ = false;
  int cpu_share_ = 0;
  Stream streams_[2];
  std::string error_prefix_;
  std::optional<std::string> error_;
  std::deque<std::string> last_words_;
};

}  // namespace lockstep
