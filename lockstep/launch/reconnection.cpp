#include "lockstep/launch/reconnection.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <utility>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kPause{200};     // between two attempts
constexpr std::chrono::milliseconds kAttempt{1500};  // to connect

}  // namespace

Reconnection::Reconnection(const HostPort& server, const Token& token, int node, int nodes,
                           std::string blob, Deadline deadline)
    : ended_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!ended_) fail_errno("cannot make an eventfd", errno);
  thread_ = std::jthread(
      [=, this, blob = std::move(blob)] { run(server, token, node, nodes, blob, deadline); });
}

Reconnection::~Reconnection() {
  gives_up_ = true;
  const std::lock_guard lock(mutex_);
  if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
}

std::optional<Reconnection::Result> Reconnection::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(result_, std::nullopt);
}

void Reconnection::end(Result result) {
  const std::lock_guard lock(mutex_);
  socket_ = -1;
  result_ = std::move(result);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(ended_.get(), &one, sizeof one);
}

void Reconnection::run(const HostPort& server, const Token& token, int node, int nodes,
                       const std::string& blob, Deadline deadline) {
  Error last(ErrorCode::kTimeout, "it does not answer");
  while (!gives_up_ && !has_passed(deadline)) {
    std::unique_ptr<NodeLink> link;
    try {
      link = std::make_unique<NodeLink>(
          rendezvous::connect_to_server(server, token, std::min(deadline, deadline_in(kAttempt))));
      {
        const std::lock_guard lock(mutex_);
        if (gives_up_) return;
        socket_ = link->fd();
      }
      link->join(node, nodes, blob, deadline);
      return end({.link = std::move(link), .error = std::nullopt});
    } catch (const Error& error) {
      const std::lock_guard lock(mutex_);
      socket_ = -1;
      last = error;
    }
    if (last.code() == ErrorCode::kUnauthorized || last.code() == ErrorCode::kMismatch) break;
    std::this_thread::sleep_for(kPause);
  }
  end({.link = nullptr, .error = last});
}

}  // namespace lockstep
