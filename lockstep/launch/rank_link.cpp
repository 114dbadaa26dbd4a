#include "lockstep/launch/rank_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/launch/variables.h"

namespace lockstep {
namespace {

constexpr std::string_view kFinalReport = "final";
constexpr std::string_view kReadyReport = "ready";
constexpr std::string_view kLostReport = "lost ";
constexpr std::string_view kHungReport = "hung ";
constexpr std::string_view kSlowReport = "slow ";
constexpr std::string_view kStaysReport = "stays ";
constexpr std::string_view kLeave = "leave";
constexpr std::string_view kEnd = "end";
constexpr std::size_t kLongestPacket = 4096;

// Whether it went out. Never waits.
bool send_packet(int fd, std::string_view text) {
  text = text.substr(0, kLongestPacket);
  ssize_t sent = 0;
  do {
    sent = ::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

std::optional<std::string> receive_packet(int fd, int flags) {
  std::array<char, kLongestPacket> packet;
  ssize_t got = 0;
  do {
    got = ::recv(fd, packet.data(), packet.size(), flags);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return std::nullopt;
  return std::string(packet.data(), static_cast<std::size_t>(got));
}

// "1,3 TEXT"
std::optional<RankReport> parse_ranks(RankReport::Kind kind, std::string_view text) {
  RankReport report{.kind = kind};
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  for (const std::string_view part : split_text(text.substr(0, space), ',')) {
    int rank = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), rank);
    if (error != std::errc() || end != part.data() + part.size()) return std::nullopt;
    report.ranks.push_back(rank);
  }
  report.text = text.substr(space + 1);
  return report;
}

}  // namespace

RankLink::RankLink() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    fail_errno("cannot make a pair of sockets", errno);
  }
  mine_ = UniqueFd(ends[0]);
  theirs_ = UniqueFd(ends[1]);
}

std::optional<RankReport> RankLink::take() {
  if (!mine_) return std::nullopt;
  while (const auto packet = receive_packet(mine_.get(), MSG_DONTWAIT)) {
    if (*packet == kFinalReport) return RankReport{.kind = RankReport::Kind::kFinal};
    if (*packet == kReadyReport) return RankReport{.kind = RankReport::Kind::kReady};
    if (packet->starts_with(kLostReport)) {
      return RankReport{.kind = RankReport::Kind::kLost,
                        .text = packet->substr(kLostReport.size())};
    }
    const std::string_view text = *packet;
    if (text.starts_with(kHungReport) || text.starts_with(kSlowReport)) {
      const bool is_slow = text.starts_with(kSlowReport);
      auto report = parse_ranks(is_slow ? RankReport::Kind::kSlow : RankReport::Kind::kLost,
                                text.substr(kHungReport.size()));
      if (!report) continue;
      return report;
    }
    if (text.starts_with(kStaysReport)) {
      return RankReport{.kind = RankReport::Kind::kStays,
                        .request = std::atoi(packet->c_str() + kStaysReport.size())};
    }
    RankReport report;
    long long step = 0;
    if (std::sscanf(packet->c_str(), "step %lld", &step) != 1) continue;
    report.step = step;
    return report;
  }
  // Its end is closed where the rank has ended: nothing more comes, and poll() would not wait.
  char byte = 0;
  if (::recv(mine_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0) mine_.reset();
  return std::nullopt;
}

void RankLink::send_leave() const {
  if (mine_) send_packet(mine_.get(), kLeave);
}

void RankLink::send_regroup(int generation, int request) const {
  if (mine_) send_packet(mine_.get(), fmt::format("regroup {} {}", generation, request));
}

void RankLink::send_join(const RankPlace& place) const {
  if (!mine_) return;
  send_packet(mine_.get(), fmt::format("join {} {} {} {} {}", place.generation, place.rank,
                                       place.size, place.local_rank, place.local_size));
}

void RankLink::send_end() const {
  if (mine_) send_packet(mine_.get(), kEnd);
}

std::optional<SupervisorLink> SupervisorLink::find() {
  const char* text = std::getenv(kSupervisorVariable);
  if (text == nullptr) return std::nullopt;
  const std::string_view number = text;
  int fd = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), fd);
  struct stat info {};
  const bool is_ours = error == std::errc() && end == number.data() + number.size() && fd > 2 &&
                       ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
  ::unsetenv(kSupervisorVariable);
  if (!is_ours) return std::nullopt;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return SupervisorLink(UniqueFd(fd));
}

std::optional<SupervisorLink::Request> SupervisorLink::await_request(int generation,
                                                                     int cancel) const {
  while (true) {
    std::array<pollfd, 2> entries{{{fd_.get(), POLLIN, 0}, {cancel, POLLIN, 0}}};
    if (::poll(entries.data(), entries.size(), -1) < 0) continue;
    if (entries[1].revents != 0) return std::nullopt;
    const auto packet = receive_packet(fd_.get(), MSG_DONTWAIT);
    if (!packet) return std::nullopt;  // the supervisor has gone, and so will this process
    if (*packet == kLeave) return Request{};
    int of = 0;
    Request request;
    const bool regroups = std::sscanf(packet->c_str(), "regroup %d %d", &of, &request.regroup) == 2;
    if (regroups && of == generation) return request;
  }
}

void SupervisorLink::report_step(std::int64_t step) const {
  send_packet(fd_.get(), fmt::format("step {}", step));
}

void SupervisorLink::report_slow(int rank, const std::string& how) const {
  send_packet(fd_.get(), fmt::format("{}{} {}", kSlowReport, rank, how));
}

void SupervisorLink::report_stays(int request) const {
  send_packet(fd_.get(), fmt::format("{}{}", kStaysReport, request));
}

void SupervisorLink::report_final() const { send_packet(fd_.get(), kFinalReport); }

std::optional<RankPlace> SupervisorLink::await_generation(const std::optional<std::string>& why,
                                                          std::span<const int> hung) const {
  std::string report(kReadyReport);
  if (why) {
    report = hung.empty() ? fmt::format("{}{}", kLostReport, *why)
                          : fmt::format("{}{} {}", kHungReport, fmt::join(hung, ","), *why);
  }
  send_packet(fd_.get(), report);
  while (const auto packet = receive_packet(fd_.get(), 0)) {
    RankPlace place;
    if (std::sscanf(packet->c_str(), "join %d %d %d %d %d", &place.generation, &place.rank,
                    &place.size, &place.local_rank, &place.local_size) == 5) {
      return place;
    }
    if (*packet == kEnd) return std::nullopt;
  }
  fail(ErrorCode::kPeerLost, "the launcher of this rank has ended");
}

}  // namespace lockstep
