#include "lockstep/bench/collectives/job.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep::bench {
namespace {

constexpr std::chrono::seconds kFarewell{3};          // for idle ranks to end by themselves
constexpr std::chrono::seconds kTimeForLastWords{1};  // for the rest of a failed job to report why

// Waits for one of `handles` to be readable; false when the deadline has passed.
bool wait_readable(std::vector<pollfd>& handles, Deadline deadline) {
  while (true) {
    const int ready = ::poll(handles.data(), handles.size(), poll_milliseconds(deadline));
    if (ready >= 0) return ready > 0;
    if (errno != EINTR) fail_errno("cannot wait for bench workers", errno);
  }
}

// Marks each line as the output of another process.
std::string in_quotes(std::string_view words) {
  if (words.empty()) return ", without output";
  std::string text;
  for (const std::string_view line : split_text(words, '\n')) text += fmt::format("\n  | {}", line);
  return text;
}

}  // namespace

Job::Job(const JobSpec& spec) : name_(spec.name), ranks_(static_cast<std::size_t>(spec.ranks)) {
  for (const Program& program : spec.programs) {
    processes_.push_back(std::make_unique<Process>(program));
  }
}

Job::~Job() { end(busy_ ? Deadline::min() : deadline_in(kFarewell)); }

bool Job::ready() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.connection.has_value(); });
}

void Job::attach(int rank, Accepted accepted) {
  Rank& slot = ranks_.at(static_cast<std::size_t>(rank));
  slot.process = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, accepted.pid, 0)));
  slot.connection.emplace(std::move(accepted.connection));
}

void Job::end(Deadline deadline) {
  for (Rank& rank : ranks_) rank.connection.reset();  // idle ranks end when it closes
  for (const auto& process : processes_) process->wait_until(deadline);
  for (const auto& process : processes_) process->end();
  for (Rank& rank : ranks_) {
    if (rank.process.get() < 0) continue;
    ::syscall(SYS_pidfd_send_signal, rank.process.get(), SIGKILL, nullptr, 0);
    rank.process.reset();
  }
}

void Job::fail_with(const std::string& why, bool hangs) {
  // Where a rank has ended, the others and the launcher may still be telling why: let them.
  end(hangs ? Deadline::min() : deadline_in(kTimeForLastWords));
  std::string words;
  for (const auto& process : processes_) {
    const std::string more = process->last_words();
    if (!words.empty() && !more.empty()) words += '\n';
    words += more;
  }
  failure_ = fmt::format("{} {}{}", name_, why, in_quotes(words));
  busy_ = false;
}

bool Job::collect(std::vector<std::optional<Reply>>& replies, Deadline deadline,
                  const Interrupt& interrupt) {
  std::vector<pollfd> handles{{interrupt.fd(), POLLIN, 0}};
  std::vector<std::size_t> waiting;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (replies[rank]) continue;
    waiting.push_back(rank);
    handles.push_back({ranks_[rank].connection->fd(), POLLIN, 0});
  }
  if (!wait_readable(handles, deadline)) {
    const std::vector<int> silent(waiting.begin(), waiting.end());
    fail_with(fmt::format("got no answer from rank {} in time", join_ranks(silent)), true);
    return false;
  }
  interrupt.check();
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (handles[i + 1].revents == 0) continue;
    const std::size_t rank = waiting[i];
    Connection& connection = *ranks_[rank].connection;
    const bool open = connection.read_some();
    if (const auto line = connection.take_line()) {
      replies[rank] = reply_from_line(*line);
      if (!replies[rank]->error.empty()) {
        fail_with(fmt::format("failed on rank {}: {}", rank, replies[rank]->error));
        return false;
      }
    } else if (!open) {
      fail_with(fmt::format("lost rank {}", rank));
      return false;
    }
  }
  return true;
}

std::optional<std::vector<Reply>> Job::run(const Task& task, Deadline deadline,
                                           const Interrupt& interrupt) {
  if (!failure_.empty()) return std::nullopt;
  std::vector<std::optional<Reply>> replies(ranks_.size());
  try {
    busy_ = true;
    for (Rank& rank : ranks_) rank.connection->send_line(to_line(task));
    while (!std::all_of(replies.begin(), replies.end(), [](const auto& r) { return r; })) {
      if (!collect(replies, deadline, interrupt)) return std::nullopt;
    }
    busy_ = false;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kAborted) throw;
    fail_with(fmt::format("failed: {}", error.what()));
    return std::nullopt;
  }
  std::vector<Reply> complete;
  for (auto& reply : replies) complete.push_back(std::move(*reply));
  return complete;
}

void connect_all(std::span<const std::unique_ptr<Job>> jobs, const MeetingPoint& meeting,
                 const Interrupt& interrupt, Deadline deadline) {
  std::vector<Accepted> strangers;  // have connected, have not said who they are
  while (true) {
    std::vector<pollfd> handles{{interrupt.fd(), POLLIN, 0}, {meeting.socket.get(), POLLIN, 0}};
    for (const Accepted& stranger : strangers) {
      handles.push_back({stranger.connection.fd(), POLLIN, 0});
    }
    bool all_done = true;
    for (const auto& job : jobs) {
      if (job->ready() || !job->failure().empty()) continue;
      all_done = false;
      for (const auto& process : job->processes_) {
        handles.push_back({process->ended_fd(), POLLIN, 0});
      }
    }
    if (all_done) return;
    const bool in_time = wait_readable(handles, deadline);
    interrupt.check();
    while (auto accepted = accept_at(meeting)) strangers.push_back(std::move(*accepted));
    std::erase_if(strangers, [&](Accepted& stranger) {
      const bool open = stranger.connection.read_some();
      const auto line = stranger.connection.take_line();
      if (!line) return !open;
      const auto words = split_text(*line, ' ');
      int rank = -1;
      if (words.size() == 2) {
        std::from_chars(words[1].data(), words[1].data() + words[1].size(), rank);
      }
      for (const auto& job : jobs) {
        const bool known = rank >= 0 && static_cast<std::size_t>(rank) < job->ranks_.size();
        if (known && job->name() == words[0]) job->attach(rank, std::move(stranger));
      }
      return true;
    });
    for (const auto& job : jobs) {
      if (job->ready() || !job->failure().empty()) continue;
      for (const auto& process : job->processes_) {
        if (process->wait_until(Deadline::min())) {
          job->fail_with(fmt::format("ended at start ({})", process->how_it_ended()));
          break;
        }
      }
      if (!in_time && job->failure().empty()) job->fail_with("did not start in time", true);
    }
  }
}

}  // namespace lockstep::bench
