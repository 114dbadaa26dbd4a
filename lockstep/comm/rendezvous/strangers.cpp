#include "lockstep/comm/rendezvous/strangers.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"

namespace lockstep {
namespace {

// Reads what is there of `data`, from byte `done` on. Error(kPeerLost) where the peer has gone.
void read_part(int fd, std::span<std::byte> data, std::size_t& done) {
  if (done == data.size()) return;
  const ssize_t got = ::recv(fd, data.data() + done, data.size() - done, MSG_DONTWAIT);
  if (got > 0) {
    done += static_cast<std::size_t>(got);
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    fail(ErrorCode::kPeerLost, "it left without proving the token");
  }
}

// A few bytes on a connection that has carried next to none: they fit its buffer.
void write_all(int fd, std::span<const std::byte> data) {
  if (::send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(data.size())) {
    fail(ErrorCode::kPeerLost, "it left without proving the token");
  }
}

}  // namespace

struct Strangers::Stranger {
  Stranger(UniqueFd socket, int from, const Token& token, std::string_view context,
           const EncryptionPolicy& policy, Deadline until, std::size_t greeting_bytes)
      : fd(std::move(socket)),
        peer(peer_name(fd.get())),
        listener(from),
        deadline(until),
        handshake(token, context, policy.wants_encryption(fd.get())),
        greeting(greeting_bytes) {}

  UniqueFd fd;
  std::string peer;
  int listener;
  Deadline deadline;
  ServerHandshake handshake;
  Answer answer{};
  std::size_t answered = 0;
  std::vector<std::byte> greeting;
  std::size_t greeted = 0;
};

Strangers::Strangers(const Token& token, std::string_view context, std::size_t greeting_bytes,
                     const EncryptionPolicy& policy, StrangerLimits limits, Dropped dropped)
    : token_(token),
      context_(context),
      greeting_bytes_(greeting_bytes),
      policy_(policy),
      limits_(limits),
      dropped_(std::move(dropped)) {}

Strangers::~Strangers() = default;

void Strangers::clear() { strangers_.clear(); }

bool Strangers::drop_oldest(std::string_view why) {
  const auto oldest = strangers_.begin();
  if (oldest == strangers_.end()) return false;
  dropped_(oldest->second.peer, why);
  strangers_.erase(oldest);
  return true;
}

void Strangers::accept_from(int listener) {
  constexpr int kMostAtOnce = 64;  // then those who are already here have their turn
  for (int count = 0; count < kMostAtOnce; ++count) {
    std::optional<UniqueFd> fd;
    try {
      fd = try_accept(listener);
    } catch (const Error&) {
      // Out of descriptors or memory.
      constexpr std::chrono::milliseconds kPause{100};
      if (drop_oldest("this process has no descriptors left")) continue;
      accept_again_ = deadline_in(kPause);
      return;
    }
    if (!fd) return;
    if (strangers_.size() >= limits_.most) drop_oldest("too many connected at once");
    const auto [at, is_new] =
        strangers_.try_emplace(next_++, std::move(*fd), listener, token_, context_, policy_,
                               deadline_in(limits_.timeout), greeting_bytes_);
    try {
      write_all(at->second.fd.get(), at->second.handshake.challenge());
    } catch (const Error& error) {
      dropped_(at->second.peer, error.what());
      strangers_.erase(at);
    }
  }
}

void Strangers::add_polls(std::vector<pollfd>& entries) const {
  for (const auto& [id, stranger] : strangers_) entries.push_back({stranger.fd.get(), POLLIN, 0});
}

bool Strangers::read(Stranger& stranger) {
  const int fd = stranger.fd.get();
  read_part(fd, stranger.answer, stranger.answered);
  if (stranger.answered < stranger.answer.size()) return false;
  read_part(fd, stranger.greeting, stranger.greeted);
  if (stranger.greeted < stranger.greeting.size()) return false;
  const auto verdict = stranger.handshake.judge(stranger.answer, stranger.greeting);
  write_all(fd, verdict.value_or(kRefused));
  if (!verdict) fail(ErrorCode::kUnauthorized, "it did not prove this job's token");
  return true;
}

std::vector<Strangers::Admitted> Strangers::serve(std::span<const pollfd> entries) {
  std::vector<Admitted> admitted;
  auto at = strangers_.begin();
  for (const pollfd& entry : entries) {
    if (at == strangers_.end()) break;
    if (entry.revents == 0) {
      ++at;
      continue;
    }
    Stranger& stranger = at->second;
    try {
      if (read(stranger)) {
        admitted.push_back({std::move(stranger.fd), stranger.handshake.protection(stranger.answer),
                            std::move(stranger.peer), stranger.listener,
                            std::move(stranger.greeting)});
        at = strangers_.erase(at);
      } else {
        ++at;
      }
    } catch (const Error& error) {
      dropped_(stranger.peer, error.what());
      at = strangers_.erase(at);
    }
  }
  return admitted;
}

void Strangers::drop_late() {
  std::erase_if(strangers_, [&](const auto& entry) {
    if (!has_passed(entry.second.deadline)) return false;
    dropped_(entry.second.peer, "it did not prove this job's token in time");
    return true;
  });
}

Deadline Strangers::next_moment() const {
  Deadline moment = accepts() ? kNoDeadline : accept_again_;
  for (const auto& [id, stranger] : strangers_) moment = std::min(moment, stranger.deadline);
  return moment;
}

}  // namespace lockstep
