// A job: all ranks of one implementation under test, alive for the whole run and idle between
// tasks.
//
// A job that fails (a rank ends, answers with an error, or does not answer in time) is ended and
// stays failed; the bench continues without it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/bench/collectives/task.h"
#include "lockstep/bench/connection.h"
#include "lockstep/bench/interrupt.h"
#include "lockstep/bench/process.h"

namespace lockstep::bench {

// What it takes to start a job: one launcher that starts the ranks, or a program per rank.
struct JobSpec {
  std::string name;
  int ranks = 0;
  std::vector<Program> programs;
};

class Job {
 public:
  explicit Job(const JobSpec& spec);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const std::string& name() const { return name_; }
  bool ready() const;  // all ranks have connected
  // Why the job has failed: a line, then its last output. Empty while it works.
  const std::string& failure() const { return failure_; }

  // Gives the task to all ranks and waits for all replies, in the order of ranks; nothing when the
  // job failed. Throws only when interrupted.
  std::optional<std::vector<Reply>> run(const Task& task, Deadline deadline,
                                        const Interrupt& interrupt);

 private:
  friend void connect_all(std::span<const std::unique_ptr<Job>>, const MeetingPoint&,
                          const Interrupt&, Deadline);
  struct Rank {
    std::optional<Connection> connection;
    UniqueFd process;  // a pidfd: launchers may put ranks out of reach of a process group
  };
  void attach(int rank, Accepted accepted);
  void fail_with(const std::string& why, bool hangs = false);
  void end(Deadline deadline);
  bool collect(std::vector<std::optional<Reply>>& replies, Deadline deadline,
               const Interrupt& interrupt);

  std::string name_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<Rank> ranks_;
  bool busy_ = false;
  std::string failure_;
};

// Waits until every job is ready or has failed.
void connect_all(std::span<const std::unique_ptr<Job>> jobs, const MeetingPoint& meeting,
                 const Interrupt& interrupt, Deadline deadline);

}  // namespace lockstep::bench
