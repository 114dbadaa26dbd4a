#include "lockstep/parallel/server/wire/connection_loop.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::parallel {
namespace {

// Reads from one connection before other connections get a turn.
constexpr int kReadsPerTurn = 32;

timespec time_until(Deadline until) {
  using std::chrono::nanoseconds;
  constexpr nanoseconds kLongest = std::chrono::hours(1);
  const auto now = std::chrono::steady_clock::now();
  const nanoseconds left = until - now > kLongest ? kLongest : nanoseconds(until - now);
  const auto count = std::max<nanoseconds::rep>(left.count(), 0);
  return {static_cast<time_t>(count / 1'000'000'000), static_cast<long>(count % 1'000'000'000)};
}

}  // namespace

ConnectionLoop::ConnectionLoop(Receiver& receiver, const std::optional<LinkEmulation>& link)
    : receiver_(receiver) {
  if (link) nic_ = std::make_unique<EmulatedNic>(*link);
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) fail_errno("cannot make an eventfd", errno);
}

int ConnectionLoop::add(SlicePipe pipe) {
  connections_.push_back(std::make_unique<Connection>(std::move(pipe), nic_.get()));
  full_.push_back(false);
  whole_.push_back(false);
  return static_cast<int>(connections_.size()) - 1;
}

void ConnectionLoop::post(int connection, OutMessage message) {
  at(connection).post(std::move(message), posted_++, std::chrono::steady_clock::now());
}

bool ConnectionLoop::any_open() const {
  return std::ranges::any_of(connections_, [](const auto& each) { return each->is_open(); });
}

bool ConnectionLoop::has_more_to_send() const {
  return std::ranges::any_of(connections_,
                             [](const auto& each) { return each->is_open() && each->has_more(); });
}

std::uint64_t ConnectionLoop::bytes_sent() const {
  std::uint64_t bytes = 0;
  for (const auto& connection : connections_) bytes += connection->bytes_sent();
  return bytes;
}

void ConnectionLoop::wake() {
  const std::uint64_t one = 1;
  // Cannot fail but for a full counter, which wakes as well.
  [[maybe_unused]] const ssize_t done = ::write(wake_.get(), &one, sizeof one);
}

// The connection whose turn it is on the line: one with something urgent, else the next in turn.
std::optional<std::size_t> ConnectionLoop::next_on_line() const {
  std::optional<std::size_t> urgent;
  std::optional<std::size_t> next;
  const std::size_t count = connections_.size();
  for (std::size_t step = 1; step <= count; ++step) {
    const std::size_t i = (on_line_ + step) % count;
    const Connection& connection = *connections_[i];
    if (!connection.is_open() || full_[i] || !connection.has_more()) continue;
    if (!next) next = i;
    const bool is_urgent = connection.first().first == kUrgent;
    if (is_urgent && (!urgent || connection.first() < connections_[*urgent]->first())) urgent = i;
  }
  return urgent ? urgent : next;
}

// Returns when there may be more to send without anything happening.
Deadline ConnectionLoop::send() {
  if (nic_ == nullptr) {
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = *connections_[i];
      if (connection.is_open() && !full_[i] && connection.has_more()) full_[i] = !connection.send();
    }
    return kNoDeadline;
  }
  while (const std::optional<std::size_t> next = next_on_line()) {
    const Deadline time = nic_->may_send_at();
    if (time > std::chrono::steady_clock::now()) return time;
    full_[*next] = !connections_[*next]->send();
    on_line_ = *next;
  }
  return kNoDeadline;
}

void ConnectionLoop::receive(int number) {
  const std::size_t i = index(number);
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    Connection& connection = *connections_[i];
    if (!connection.is_open()) return;
    if (deaf_) {
      if (!connection.drain()) connection.close();
      return;
    }
    if (whole_[i]) return;
    switch (connection.receive()) {
      case Connection::Progress::kNothing:
        return;
      case Connection::Progress::kSome:
        break;
      case Connection::Progress::kHeader: {
        const Header& header = connection.header();
        connection.give_place(receiver_.place(number, header));
        if (header.bytes > 0) break;
        [[fallthrough]];
      }
      case Connection::Progress::kWhole:
        whole_[i] = true;
        if (connection.seen_at() <= std::chrono::steady_clock::now()) hand_over();
        break;
      case Connection::Progress::kClosed:
        connection.close();
        receiver_.lost(number);
        return;
    }
  }
}

// Returns when the next received message may be delivered; at once where one was delivered, because
// its receiver may have queued work.
Deadline ConnectionLoop::hand_over() {
  Deadline next = kNoDeadline;
  if (deaf_) return next;
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = *connections_[i];
    if (!whole_[i]) continue;
    if (connection.seen_at() > std::chrono::steady_clock::now()) {
      next = std::min(next, connection.seen_at());
      continue;
    }
    whole_[i] = false;
    const Header header = connection.header();
    const std::span<std::byte> payload = connection.payload();
    connection.next_message();
    receiver_.take(static_cast<int>(i), header, payload);
    next = Deadline();
  }
  return next;
}

void ConnectionLoop::finish(Deadline until) {
  deaf_ = true;
  while (has_more_to_send() && !has_passed(until)) step(until);
  for (const auto& connection : connections_) connection->pipe().end_writing();
  while (any_open() && !has_passed(until)) step(until);
  for (const auto& connection : connections_) connection->close();
}

void ConnectionLoop::step(Deadline until) {
  until = std::min(until, hand_over());
  until = std::min(until, send());
  std::vector<pollfd> entries{{wake_.get(), POLLIN, 0}};
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = *connections_[i];
    const bool to_read = connection.is_open() && (!whole_[i] || deaf_);
    const bool to_write = connection.is_open() && full_[i] && connection.has_more();
    short events = 0;
    if (to_read || (to_write && !connection.pipe().polls_to_write())) events |= POLLIN;
    if (to_write && connection.pipe().polls_to_write()) events |= POLLOUT;
    entries.push_back({events != 0 ? connection.fd() : -1, events, 0});
    if (events != 0 && !connection.pipe().may_sleep(to_read, to_write)) until = Deadline();
  }
  const timespec timeout = time_until(until);
  if (::ppoll(entries.data(), entries.size(), &timeout, nullptr) < 0) return;
  std::uint64_t woken = 0;
  if (entries[0].revents != 0) {
    [[maybe_unused]] const ssize_t done = ::read(wake_.get(), &woken, sizeof woken);
  }
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    const pollfd& entry = entries[i + 1];
    if (entry.fd < 0) continue;
    const SlicePipe::Woken now =
        connections_[i]->pipe().wake_up((entry.revents & (POLLIN | POLLERR | POLLHUP)) != 0);
    if (now.write || (entry.revents & (POLLOUT | POLLERR | POLLHUP)) != 0) full_[i] = false;
    if (now.read) receive(static_cast<int>(i));
  }
}

}  // namespace lockstep::parallel
