#include "lockstep/comm/native/acceptor.h"

#include <poll.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/comm/rendezvous/handshake.h"

namespace lockstep {
namespace {

constexpr std::string_view kContext = "lockstep rank to rank";
constexpr auto kHandshake = std::chrono::seconds(5);
constexpr int kMostGreetings = 128;  // unproven connections at a time
constexpr auto kLook = std::chrono::milliseconds(50);

}  // namespace

void knock(int socket, const Token& token, const Hello& hello, Deadline deadline) {
  prove_to_server(socket, token, kContext, deadline);
  send_all(socket, std::as_bytes(std::span(&hello, 1)), deadline);
}

Acceptor::~Acceptor() {
  closing_ = true;
  for (std::thread& thread : threads_) thread.join();
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return greeting_ == 0; });
}

void Acceptor::open(UniqueFd listener, bool same_machine) {
  const int fd = listeners_.emplace_back(std::move(listener)).get();
  threads_.emplace_back([this, fd, same_machine] { accept_from(fd, same_machine); });
}

void Acceptor::accept_from(int listener, bool same_machine) {
  while (!closing_) {
    pollfd poll_for{listener, POLLIN, 0};
    if (::poll(&poll_for, 1, static_cast<int>(kLook.count())) <= 0) continue;
    auto socket = try_accept(listener);
    if (!socket) continue;
    {
      const std::lock_guard lock(mutex_);
      if (greeting_ >= kMostGreetings) continue;  // too many strangers connect; ranks try again
      ++greeting_;
    }
    std::thread([this, same_machine, connection = std::move(*socket)]() mutable {
      greet(std::move(connection), same_machine);
    }).detach();
  }
}

void Acceptor::greet(UniqueFd socket, bool same_machine) {
  Hello hello;
  bool proved = false;
  try {
    const Deadline deadline = deadline_in(kHandshake);
    prove_to_client(socket.get(), token_, kContext, deadline);
    receive_all(socket.get(), std::as_writable_bytes(std::span(&hello, 1)), deadline);
    proved = true;
  } catch (const Error& error) {
    log_info("turned away a connection: {}", error.what());
  }
  const std::lock_guard lock(mutex_);
  if (proved) visitors_[hello] = {std::move(socket), same_machine};
  --greeting_;
  arrived_.notify_all();
}

Visitor Acceptor::await(const Hello& hello, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const bool came =
      arrived_.wait_until(lock, std::min(deadline, deadline_in(std::chrono::hours(24))),
                          [&] { return visitors_.contains(hello); });
  if (!came) {
    throw Error(ErrorCode::kTimeout,
                fmt::format("rank {} did not connect in time; is it running, and can it reach this "
                            "machine?",
                            hello.from),
                {hello.from});
  }
  Visitor visitor = std::move(visitors_[hello]);
  visitors_.erase(hello);
  return visitor;
}

}  // namespace lockstep
