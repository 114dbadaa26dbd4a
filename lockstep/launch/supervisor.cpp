#include "lockstep/launch/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/descendants.h"
#include "lockstep/launch/guardian.h"

namespace lockstep {
namespace {

using std::chrono::seconds;

constexpr int kSignalBase = 128;
constexpr std::chrono::milliseconds kJudgeTimeout{250};

UniqueFd make_signal_fd() {
  sigset_t signals = forwarded_signals();
  sigaddset(&signals, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) fail_errno("cannot make a signalfd", errno);
  return fd;
}

bool has_children() {
  siginfo_t info;
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

bool has_stopped(const RankProcess* rank) { return rank->status()->code() == kToBeContinued; }

bool takes_colour(int fd) { return ::isatty(fd) != 0 && std::getenv("NO_COLOR") == nullptr; }

}  // namespace

Supervisor::Supervisor(const LaunchOptions& options, NodeSetup& setup, UniqueFd lifeline)
    : options_(options),
      setup_(setup),
      lifeline_(std::move(lifeline)),
      signals_(make_signal_fd()),
      output_port_(STDOUT_FILENO),
      separate_error_port_(STDERR_FILENO),
      error_port_(lead_to_the_same(STDOUT_FILENO, STDERR_FILENO) ? &output_port_
                                                                 : &separate_error_port_),
      plan_(options.grace),
      verdict_(job_link_, options.nodes),
      job_link_(std::move(setup.link)) {
  if (options.node_rank == 0) {
    coordinator_.emplace(Coordinator::Options{.nodes = options.nodes,
                                              .ranks_per_node = options.ranks_per_node,
                                              .restarts = options.restarts.most,
                                              .has_links = options.restarts.has_links,
                                              .least = options.elastic.least,
                                              .least_nodes = options.elastic.least_nodes,
                                              .spares = options.elastic.spares,
                                              .grace = options.grace,
                                              .rejoin_timeout = options.rejoin_timeout},
                         setup.nodes);
  }
  if (options.is_elastic() && coordinator_) resize_due_ = Deadline::min();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);  // a terminal set to stop background writers must not stop us
}

Supervisor::~Supervisor() { kill_descendants(deadline_in(seconds(5))); }

int Supervisor::run() {
  coordinate();
  hear_nodes();
  while (!job_is_over()) step(due());
  clean_up();
  return verdict_.culprit() ? verdict_.culprit()->exit_code : 0;
}

RankProcess::Sink Supervisor::sink_of(OutputPort& port, int rank) const {
  RankProcess::Sink sink{&port, "", false, options_.hear_output};
  if (!options_.prefix_output) return sink;
  sink.prefix = fmt::format("[{}] ", rank);
  if (!takes_colour(port.fd())) return sink;
  constexpr int kColours[] = {36, 33, 32, 35, 34, 96, 93, 92, 95, 94};
  const int colour = kColours[static_cast<std::size_t>(rank) % std::size(kColours)];
  sink.prefix = fmt::format("\033[{}m[{}]\033[0m ", colour, rank);
  return sink;
}

std::unique_ptr<RankProcess> Supervisor::start_rank(int local_rank) {
  SpawnRequest request;
  request.environment = rank_environment(options_, setup_, local_rank);
  const int share = free_cpu_share();
  if (options_.bind) request.cpus = CpuSet::of_this_thread().share(share, options_.ranks_per_node);
  auto process = start_process(std::move(request), setup_.first_rank + local_rank);
  process->set_cpu_share(share);
  return process;
}

std::unique_ptr<RankProcess> Supervisor::start_process(SpawnRequest request, int rank) {
  request.program = find_program(options_.command.front());
  request.arguments = options_.command;
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) fail_errno("cannot open /dev/null", errno);
  const bool is_spare = rank == RankProcess::kSpare;
  const bool gets_input = rank == 0 && ::isatty(STDIN_FILENO) == 0;
  request.standard_input = gets_input ? STDIN_FILENO : nothing.get();
  // A rank that is asked to stop while a generation begins has states to save.
  request.holds_stop_signals = options_.restarts.has_links && (setup_.generation > 0 || is_spare);
  RankProcess::Sink error = sink_of(*error_port_, rank);
  error.is_live = options_.live_output && rank == 0;
  std::optional<RankLink> link;
  if (options_.restarts.has_links && options_.recovers()) link.emplace();
  auto process =
      std::make_unique<RankProcess>(rank, std::move(request), sink_of(output_port_, rank),
                                    std::move(error), options_.error_prefix, std::move(link));
  if (options_.describe_rank && !is_spare) process->set_place(options_.describe_rank(rank));
  return process;
}

bool Supervisor::all_ranks_ended() const {
  return std::ranges::all_of(ranks_, [](const auto& rank) { return rank->has_ended(); });
}

bool Supervisor::job_is_over() const {
  if (!all_ranks_ended() || is_recovering_) return false;
  return verdict_.culprit() || (!verdict_.is_failure() && verdict_.all_nodes_succeeded());
}

Deadline Supervisor::due() const {
  Deadline due = std::min({plan_.due(), verdict_.settled_by(), judged_by_, resize_due_});
  if (verdict_.is_failure()) return due;
  if (is_recovering_) due = std::min(due, kill_by_);
  return coordinator_ ? std::min(due, coordinator_->due()) : due;
}

// Serves what happens until something has happened or `until` has come.
void Supervisor::step(Deadline until) {
  std::vector<pollfd> entries{{signals_.get(), POLLIN, 0}, {lifeline_.get(), POLLIN, 0}};
  entries.push_back({job_link_.fd(), POLLIN, 0});
  entries.push_back({reconnection_ ? reconnection_->fd() : -1, POLLIN, 0});
  for (const OutputPort* port : {&output_port_, &separate_error_port_}) {
    entries.push_back({port->pending() > 0 ? port->fd() : -1, POLLOUT, 0});
  }
  const std::size_t first_rank = entries.size();
  std::vector<RankProcess*> readers;
  for (RankProcess* const rank : processes()) {
    for (const int fd : rank->readable_fds()) {
      entries.push_back({fd, POLLIN, 0});
      readers.push_back(rank);
    }
    if (rank->link() != nullptr) {
      entries.push_back({rank->link()->fd(), POLLIN, 0});
      readers.push_back(rank);
    }
  }
  const int timeout = job_link_.has_news() ? 0 : poll_milliseconds(until);
  if (::poll(entries.data(), entries.size(), timeout) > 0) {
    // Output first: what a rank wrote before it died stands before the report of its death.
    for (std::size_t i = 0; i < readers.size(); ++i) {
      if (entries[first_rank + i].revents == 0) continue;
      readers[i]->read_from(entries[first_rank + i].fd);
      hear(*readers[i]);
    }
    if (entries[2].revents != 0) hear_nodes();
    follow_request();
    signalfd_siginfo info;
    while (entries[0].revents != 0 && ::read(signals_.get(), &info, sizeof info) == sizeof info) {
      handle_signal(static_cast<int>(info.ssi_signo));
    }
    if (entries[1].revents != 0) {
      lifeline_.reset();
      if (options_.recovers()) leave_job();  // it may be started again
      fail_here(fmt::format("the launcher{} was killed", on_this_node()), kSignalBase + SIGKILL);
      if (job_link_.is_cut_off()) verdict_.settle();
      plan_.kill_now(std::chrono::steady_clock::now());
    }
  }
  judge();
  hear_resize_request();
  if (job_link_.has_news()) hear_nodes();
  coordinate();
  if (job_link_.has_news()) hear_nodes();
  report_if_ended();
  follow_verdict();
  advance_recovery();
  become_firmer();
  flush_ports();
}

void Supervisor::flush_ports() {
  for (OutputPort* port : {&output_port_, &separate_error_port_}) {
    if (port->flush()) continue;
    port->discard();
    if (!verdict_.is_failure()) handle_reader_gone();
  }
}

void Supervisor::handle_reader_gone() {
  fail_here(fmt::format("the reader of the output{} has closed it", on_this_node()),
            kSignalBase + SIGPIPE);
  for (const auto& rank : ranks_) rank->signal_group(SIGTERM);
}

void Supervisor::handle_signal(int signal) {
  if (signal == SIGCHLD) return reap();
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    for (const auto& rank : ranks_) rank->signal_process(signal);
    return;
  }
  if (signal == SIGINT && asked_here_by_ == SIGINT) {
    say("SIGINT again: killing all ranks");
    kills_ranks_ = true;
    if (all_ranks_ended()) report_interruption();  // other nodes' are still running
    return plan_.kill_now(std::chrono::steady_clock::now());
  }
  const std::string_view warning = signal == SIGINT ? "; a second one kills them" : "";
  if (std::exchange(asked_here_by_, signal) == 0 && interrupted_by_ == signal) {
    return say(fmt::format("the ranks have {} already{}", signal_name(signal), warning));
  }
  if (interrupted_by_ == 0) {
    interruption_ = fmt::format("interrupted{} by {}", on_this_node(), signal_name(signal));
    verdict_.report_request({signal, interruption_});
  }
  say(fmt::format("passing {} on to the ranks{}", signal_name(signal), warning));
  interrupt(signal);
}

void Supervisor::interrupt(int signal) {
  interrupted_by_ = signal;
  for (const auto& rank : ranks_) rank->signal_group(signal);
}

// Whichever node was asked to stop, all ranks are.
void Supervisor::follow_request() {
  if (interrupted_by_ != 0 || !verdict_.stop_request() || verdict_.is_failure()) return;
  if (all_ranks_ended() && unjudged_.empty() && !is_recovering_) return;
  interruption_ = verdict_.stop_request()->text;
  say(fmt::format("{}: passing it on to the ranks", interruption_));
  interrupt(verdict_.stop_request()->signal);
}

void Supervisor::become_firmer() {
  const auto now = std::chrono::steady_clock::now();
  if (const auto signal = plan_.take_due_signal(now)) {
    for (const auto& rank : ranks_) rank->signal_group(*signal);
  }
}

void Supervisor::reap() {
  int status = 0;
  while (true) {
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid <= 0) break;
    const std::vector<RankProcess*> all = processes();
    const auto found =
        std::ranges::find_if(all, [&](const RankProcess* rank) { return rank->pid() == pid; });
    if (found == all.end()) continue;  // an orphan that a rank left to us
    RankProcess& rank = **found;
    rank.set_status({status});
    rank.drain();
    hear(rank);
    if (rank.rank() == RankProcess::kSpare) {
      handle_end_of_spare(rank);
      continue;
    }
    if (rank.status()->is_success()) {
      rank.tell_error();
      if (coordinator_) coordinator_->finish(rank.rank());
      continue;
    }
    if (unjudged_.empty()) judged_by_ = deadline_in(kJudgeTimeout);
    unjudged_.push_back(&rank);
  }
}

void Supervisor::report_if_ended() {
  if (verdict_.is_failure() || !unjudged_.empty() || !all_ranks_ended() || is_recovering_) return;
  if (!to_be_continued_) return verdict_.report_success();
  if (end_after_) return fail_here(end_after_->text, end_after_->exit_code);
  verdict_.report_stopped();
  if (kills_ranks_) report_interruption();  // other nodes' ranks are not to be waited for
}

// A killed process lets go of its connections before it counts as ended, so ranks that end because
// of it may be reaped first. One that a signal killed did not end because of the others.
void Supervisor::judge() {
  const auto killed = [](const RankProcess* rank) { return rank->status()->signal() != 0; };
  // A rank that has stopped may have received a stop request from other ranks before the launcher
  // did.
  const bool knows_more = options_.nodes > 1 && std::ranges::any_of(unjudged_, has_stopped);
  const bool due = std::ranges::any_of(unjudged_, killed) || (all_ranks_ended() && !knows_more) ||
                   has_passed(judged_by_) || verdict_.is_failure() || interrupted_by_ != 0 ||
                   is_recovering_;
  if (unjudged_.empty() || !due) return;
  judged_by_ = kNoDeadline;
  const auto others = std::ranges::stable_partition(unjudged_, killed);
  // One that ended because of others is not the culprit.
  std::ranges::stable_partition(others,
                                [](const RankProcess* rank) { return rank->blamed().empty(); });
  // A job that cannot continue does not report that it continues without the ranks that failed with
  // it.
  std::ranges::stable_partition(others,
                                [&](const RankProcess* rank) { return !is_tolerated(*rank); });
  for (RankProcess* rank : std::exchange(unjudged_, {})) handle_end(*rank);
}

bool Supervisor::is_tolerated(const RankProcess& rank) const {
  const auto& tolerates = options_.tolerates_loss_of;
  return tolerates && tolerates(rank.rank()) && std::ranges::all_of(rank.blamed(), tolerates);
}

bool Supervisor::waits_for_needed_rank() const {
  return std::ranges::any_of(
      ranks_, [&](const auto& rank) { return !rank->has_ended() && !is_tolerated(*rank); });
}

void Supervisor::handle_end(RankProcess& rank) {
  const auto follow = [&] {
    if (repeats_an_error(rank)) {
      repeaters_.push_back(rank.rank());
    } else {
      followers_.push_back(&rank);
    }
  };
  if (is_recovering_ && !verdict_.is_failure()) {
    end_during_recovery(rank);
  } else if (interrupted_by_ != 0 && has_stopped(&rank)) {
    to_be_continued_ = true;  // as asked; others may have more to save
    if (!waits_for_needed_rank()) plan_.start(std::chrono::steady_clock::now());
  } else if (verdict_.is_failure()) {
    if (has_stopped(&rank)) return;
    follow();
    plan_.start(std::chrono::steady_clock::now());
  } else if (interrupted_by_ != 0) {
    follow();
    if (is_tolerated(rank) && (to_be_continued_ || waits_for_needed_rank())) return;
    report_interruption();
  } else if (is_tolerated(rank)) {
    report_end(rank);
    say(fmt::format("the job continues without rank {}", rank.rank()));
  } else if (!may_recover_from(rank)) {
    report_failure(rank);
  }
}

bool Supervisor::repeats_an_error(RankProcess& rank) {
  if (!rank.error()) return false;
  const bool is_new = told_errors_.insert(*rank.error()).second;
  if (is_new) {
    rank.tell_error();
  } else {
    rank.drop_error();
  }
  return !is_new;
}

void Supervisor::report_end(RankProcess& rank) {
  const auto words = rank.last_words();
  const bool has_error = rank.error().has_value();
  const bool told_above = !repeats_an_error(rank) && has_error;
  say(fmt::format("{} {}", rank.name(on_this_node()), rank.status()->describe()));
  if (told_above) return;
  say(words.empty() ? "it wrote nothing to standard error" : "its last output was");
  for (const std::string& line : words) say("  | " + line);
}

void Supervisor::report_failure(RankProcess& rank) {
  report_end(rank);
  fail_by(rank);
}

void Supervisor::fail_by(const RankProcess& rank) {
  if (!all_ranks_ended()) {
    say(fmt::format("the other ranks have {:g} s to end on their own",
                    std::chrono::duration<double>(options_.grace).count()));
  }
  fail_here(culprit_text(rank), rank.status()->code());
}

// Of a rank that ended because of others, they are the culprits; unless they say the same of
// others.
std::string Supervisor::culprit_text(const RankProcess& rank) const {
  const std::string witness =
      fmt::format("{} {}", rank.name(on_this_node()), rank.status()->describe());
  for (const int blamed : rank.blamed()) {
    const auto found =
        std::ranges::find_if(ranks_, [&](const auto& each) { return each->rank() == blamed; });
    if (found == ranks_.end()) {
      const std::string place = options_.describe_rank ? options_.describe_rank(blamed) : "";
      return fmt::format("rank {}{} is at fault: {}", blamed,
                         place.empty() ? "" : fmt::format(" ({})", place), witness);
    }
    if (!(*found)->blamed().empty()) continue;
    return fmt::format("{} is at fault: {}", (*found)->name(on_this_node()), witness);
  }
  return witness;
}

std::string Supervisor::on_this_node() const {
  return options_.nodes > 1 ? fmt::format(" on node {}", options_.node_rank) : "";
}

void Supervisor::fail_here(std::string text, int exit_code) {
  verdict_.report({std::move(text), exit_code});
  // There is no next generation to wait for.
  for (const auto& rank : ranks_) {
    if (rank->lost()) rank->link()->send_end();
  }
  plan_.start(std::chrono::steady_clock::now());
}

void Supervisor::report_interruption() { fail_here(interruption_, kSignalBase + interrupted_by_); }

void Supervisor::follow_verdict() {
  verdict_.settle_if_due();
  if (!verdict_.culprit()) return;
  if (!verdict_.culprit()->is_stop) plan_.start(std::chrono::steady_clock::now());
  if (verdict_.culprit_is_elsewhere() && !verdict_.culprit()->is_stop && !announced_) {
    say(fmt::format("the job ends: {}", verdict_.culprit()->text));
  }
  announced_ = true;
}

void Supervisor::tell_followers() {
  constexpr std::size_t kMostNamed = 8;
  for (std::size_t i = 0; i < std::min(followers_.size(), kMostNamed); ++i) {
    say("then " + followers_[i]->describe());
  }
  if (followers_.size() > kMostNamed) {
    say(fmt::format("then {} more ranks", followers_.size() - kMostNamed));
  }
  if (repeaters_.empty()) return;
  std::ranges::sort(repeaters_);
  const std::size_t named = std::min(repeaters_.size(), kMostNamed);
  const std::size_t more = repeaters_.size() - named;
  say(fmt::format(
      "rank{} {}{} ended with the same error", repeaters_.size() > 1 ? "s" : "",
      fmt::join(repeaters_.begin(), repeaters_.begin() + static_cast<long>(named), ", "),
      more > 0 ? fmt::format(" and {} more", more) : ""));
}

void Supervisor::clean_up() {
  for (const auto& spare : spares_) spare->release();
  // Helpers of a rank that ended well, say a pipe into a log, may need a moment to finish.
  constexpr seconds kLinger{1};
  const Deadline lingering = deadline_in(kLinger);
  while (!verdict_.is_failure() && has_children() && !has_passed(lingering)) step(lingering);
  if (!kill_descendants(deadline_in(seconds(5)))) say("some processes could not be killed");
  for (const auto& rank : ranks_) {
    rank->drain();
    rank->finish_lines();
    rank->tell_error();
  }
  if (verdict_.culprit()) {
    tell_followers();
    const std::string& text = verdict_.culprit()->text;
    const bool was_stopped = (interrupted_by_ != 0 && !end_after_) || verdict_.culprit()->is_stop;
    say(was_stopped ? text : fmt::format("the job failed: {}", text));
  }
  const int interrupted_before = std::exchange(interrupted_by_, 0);
  while (lifeline_ && interrupted_by_ == 0 &&
         output_port_.pending() + separate_error_port_.pending() > 0) {
    step(kNoDeadline);
  }
  interrupted_by_ = interrupted_before;
}

}  // namespace lockstep
