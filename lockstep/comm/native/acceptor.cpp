#include "lockstep/comm/native/acceptor.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/comm/rendezvous/handshake.h"

namespace lockstep {
namespace {

constexpr std::string_view kContext = "lockstep rank to rank";
constexpr std::size_t kMostStrangers = 256;              // besides those that are expected
constexpr auto kPeerTimeout = std::chrono::seconds(30);  // with a machine that does not answer

// Both ends of a connection call it. A machine that has gone is noticed on the control connection,
// which carries little; on the others a rank that is paused may leave data unread for as long as
// comm.timeout allows, and the kernel must not end them for it.
void watch_peer(int socket, Purpose purpose) {
  if (!is_tcp(socket)) return;
  if (purpose == Purpose::kControl) {
    set_peer_timeout(socket, kPeerTimeout);
  } else {
    set_keepalive(socket, kPeerTimeout);
  }
}

}  // namespace

ProvenSocket connect_as(const Hello& hello, const std::function<UniqueFd()>& connect,
                        const Token& token, Deadline deadline, const EncryptionPolicy& policy,
                        const std::stop_token& stop) {
  ProvenSocket proven = connect_and_prove(connect, token, kContext, deadline, policy,
                                          std::as_bytes(std::span(&hello, 1)), stop);
  watch_peer(proven.socket.get(), hello.purpose);
  return proven;
}

Acceptor::Acceptor(const Token& token, int connections, const EncryptionPolicy& policy)
    : strangers_(token, kContext, sizeof(Hello), policy,
                 {.most = kMostStrangers + static_cast<std::size_t>(connections)},
                 [](std::string_view peer, std::string_view why) {
                   log_info("rejected a connection from {}: {}", peer, why);
                 }),
      wake_(make_pipe()),
      thread_([this] { serve(); }) {}

Acceptor::~Acceptor() {
  wake_.write_end.reset();
  thread_.join();
}

void Acceptor::open(UniqueFd listener, bool same_machine) {
  {
    const std::lock_guard lock(mutex_);
    listeners_.push_back({std::move(listener), same_machine});
  }
  const char another = 0;
  if (::write(wake_.write_end.get(), &another, 1) != 1) fail_errno("cannot write a pipe", errno);
}

void Acceptor::serve() {
  while (true) {
    std::vector<pollfd> entries = {{wake_.read_end.get(), POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      for (const OpenListener& listener : listeners_) {
        entries.push_back({strangers_.accepts() ? listener.fd.get() : -1, POLLIN, 0});
      }
    }
    const std::size_t first = entries.size();
    strangers_.add_polls(entries);
    if (::poll(entries.data(), entries.size(), poll_milliseconds(strangers_.next_moment())) > 0) {
      char another = 0;
      if (entries[0].revents != 0 && ::read(wake_.read_end.get(), &another, 1) == 0) return;
      for (auto& admitted : strangers_.serve(std::span(entries).subspan(first))) {
        admit(std::move(admitted));
      }
      for (std::size_t i = 1; i < first; ++i) {
        if (entries[i].revents != 0) strangers_.accept_from(entries[i].fd);
      }
    }
    strangers_.drop_late();
  }
}

void Acceptor::admit(Strangers::Admitted admitted) {
  Hello hello;
  std::memcpy(&hello, admitted.greeting.data(), sizeof hello);
  try {
    watch_peer(admitted.fd.get(), hello.purpose);
  } catch (const Error& error) {
    return log_info("lost a connection of rank {}: {}", hello.from, error.what());
  }
  const std::lock_guard lock(mutex_);
  const auto listener = std::ranges::find_if(
      listeners_, [&](const OpenListener& each) { return each.fd.get() == admitted.listener; });
  visitors_[hello] = {std::move(admitted.fd), admitted.protection, listener->same_machine};
  arrived_.notify_all();
}

Visitor Acceptor::await(const Hello& hello, Deadline deadline, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const bool came =
      arrived_.wait_until(lock, stop, std::min(deadline, deadline_in(std::chrono::hours(24))),
                          [&] { return visitors_.contains(hello); });
  if (!came) {
    throw_if_stopped(stop);
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
