#include "lockstep/launch/rank_process.h"

#include <fmt/format.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill() is in no other
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "lockstep/base/text/text.h"
#include "lockstep/launch/blame.h"
#include "lockstep/launch/variables.h"

namespace lockstep {
namespace {

constexpr std::size_t kClogged = 1 << 20;
constexpr std::size_t kLongestLastWord = 1000;

}  // namespace

RankProcess::RankProcess(int rank, SpawnRequest request, Sink output, Sink error,
                         std::string error_prefix, std::optional<RankLink> link)
    : rank_(rank), link_(std::move(link)), error_prefix_(std::move(error_prefix)) {
  Pipe output_pipe = make_pipe();
  Pipe error_pipe = make_pipe();
  request.standard_output = output_pipe.write_end.get();
  request.standard_error = error_pipe.write_end.get();
  set_nonblocking(output_pipe.read_end.get());
  set_nonblocking(error_pipe.read_end.get());
  if (link_) {
    request.inherited = link_->rank_end();
    request.environment.push_back(fmt::format("{}={}", kSupervisorVariable, link_->rank_end()));
  }
  pid_ = spawn(request);
  if (link_) link_->close_rank_end();
  streams_[0] = {std::move(output_pipe.read_end), std::move(output), {}, false};
  streams_[1] = {std::move(error_pipe.read_end), std::move(error), {}, true};
}

std::string RankProcess::describe() const {
  return fmt::format("{} {}", name(), status_ ? status_->describe() : std::string("runs"));
}

std::string RankProcess::name(std::string_view on_node) const {
  if (rank_ == kSpare) return fmt::format("a spare (pid {})", pid_);
  return fmt::format("rank {}{} ({}{}pid {}{})", rank_, on_node, place_, place_.empty() ? "" : "; ",
                     pid_, is_stopped() ? ", stopped" : "");
}

void RankProcess::signal_process(int signal) const {
  if (!has_ended()) ::kill(pid_, signal);
}

void RankProcess::signal_group(int signal) const {
  if (has_ended()) return;
  ::kill(-pid_, signal);
  if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) ::kill(-pid_, SIGCONT);
}

bool RankProcess::is_stopped() const {
  std::ifstream file(fmt::format("/proc/{}/stat", pid_));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  // "123 (name) T ...", and a name may hold anything.
  const auto name_end = text.rfind(')');
  return !has_ended() && name_end != std::string::npos && text.substr(name_end).starts_with(") T");
}

std::vector<int> RankProcess::readable_fds() const {
  std::vector<int> fds;
  for (const Stream& stream : streams_) {
    if (stream.fd && stream.sink.port->pending() < kClogged) fds.push_back(stream.fd.get());
  }
  return fds;
}

void RankProcess::read_from(int fd) {
  for (Stream& stream : streams_) {
    if (stream.fd && stream.fd.get() == fd) read_once(stream);
  }
}

bool RankProcess::read_once(Stream& stream) {
  std::array<char, 64 << 10> chunk;
  const ssize_t got = ::read(stream.fd.get(), chunk.data(), chunk.size());
  if (got < 0) return errno == EINTR;
  const auto out = [&](std::string_view line) { emit(stream, line); };
  if (got == 0) {
    stream.lines.finish(out);
    stream.fd.reset();
    return false;
  }
  stream.lines.feed({chunk.data(), static_cast<std::size_t>(got)}, out);
  if (stream.sink.is_live && stream.lines.unfinished().ends_with('\r')) {
    emit_live(stream, stream.lines.take_unfinished());
  }
  return true;
}

void RankProcess::drain() {
  for (Stream& stream : streams_) {
    // A pipe holds fewer chunks than this; a process that still writes must not keep the launcher
    // here.
    for (int chunk = 0; stream.fd && chunk < 32 && read_once(stream); ++chunk) {
    }
  }
}

void RankProcess::finish_lines() {
  for (Stream& stream : streams_) {
    stream.lines.finish([&](std::string_view line) { emit(stream, line); });
  }
}

std::string_view RankProcess::emit_live(const Stream& stream, std::string_view text) {
  const std::size_t rest = text.rfind('\r') + 1;  // 0: there is none
  if (!stream.sink.is_live || rest == 0) return text;
  stream.sink.port->put_live(text.substr(0, rest));
  return text.substr(rest);
}

void RankProcess::emit(Stream& stream, std::string_view line) {
  line = emit_live(stream, line);
  if (stream.sink.hear) {
    stream.sink.hear(rank_ == kSpare ? std::nullopt : std::optional(rank_), line);
  }
  if (stream.is_error) {
    last_words_.emplace_back(line.substr(0, kLongestLastWord));
    if (last_words_.size() > kMostLastWords) last_words_.pop_front();
    if (error_ && line.starts_with(' ')) {
      error_->append("\n").append(line);
      return;
    }
    tell_error();
    if (!error_prefix_.empty() && line.starts_with(error_prefix_)) {
      error_ = line;
      return;
    }
  }
  stream.sink.port->put_line(stream.sink.prefix, line);
}

void RankProcess::tell_error() {
  if (!error_) return;
  const Sink& sink = streams_[1].sink;
  for (const std::string_view line : split_text(*error_, '\n')) {
    sink.port->put_line(sink.prefix, line);
  }
  error_.reset();
}

std::vector<std::string> RankProcess::last_words() const {
  std::vector<std::string> words(last_words_.begin(), last_words_.end());
  const std::string_view unfinished = streams_[1].lines.unfinished();
  if (!unfinished.empty()) words.emplace_back(unfinished.substr(0, kLongestLastWord));
  if (words.size() > kMostLastWords) words.erase(words.begin());
  return words;
}

std::vector<int> RankProcess::blamed() const {
  const std::vector<std::string> words = last_words();
  std::vector<int> ranks = words.empty() ? std::vector<int>() : parse_blame(words.back());
  std::erase(ranks, rank_);
  return ranks;
}

}  // namespace lockstep
