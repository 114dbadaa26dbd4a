#include "lockstep/comm/rendezvous/connection.h"

#include <sys/socket.h>

#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"

namespace lockstep::rendezvous {
namespace {

template <std::size_t N>
std::string text_of(const std::array<std::byte, N>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Connection::Connection(UniqueFd fd, const Token& token, Deadline handshake_deadline)
    : fd_(std::move(fd)),
      peer_(peer_name(fd_.get())),
      handshake_deadline_(handshake_deadline),
      handshake_(std::in_place, token, kContext) {
  push(text_of(handshake_->challenge()));
}

bool Connection::read() { return is_stranger() ? read_answer() : incoming_.fill_from(fd()); }

bool Connection::read_answer() {
  const ssize_t got =
      ::recv(fd(), answer_.data() + answered_, answer_.size() - answered_, MSG_DONTWAIT);
  if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  answered_ += static_cast<std::size_t>(got);
  if (answered_ < answer_.size()) return true;
  const auto verdict = handshake_->judge(answer_);
  if (!verdict) {
    push(text_of(kRefused));
    write();
    fail(ErrorCode::kUnauthorized, "it did not prove this job's token");
  }
  push(text_of(*verdict));
  handshake_.reset();
  return true;
}

std::optional<std::string> Connection::next_frame() {
  return is_stranger() ? std::nullopt : incoming_.next();
}

}  // namespace lockstep::rendezvous
