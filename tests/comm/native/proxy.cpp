#include "tests/comm/native/proxy.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep::testing {

Proxy::Proxy(const ProxyChange& change)
    : change_(change), wake_(make_pipe()), thread_([this] { serve(); }) {}

Proxy::~Proxy() {
  wake_.write_end.reset();
  thread_.join();
}

HostPort Proxy::front(const HostPort& target) {
  Listener listener = listen_tcp({"127.0.0.1", 0});
  const HostPort address = listener.address;
  {
    const std::lock_guard lock(mutex_);
    fronts_.push_back({std::move(listener.fd), target});
  }
  const char another = 0;
  if (::write(wake_.write_end.get(), &another, 1) != 1) fail_errno("cannot write a pipe", errno);
  return address;
}

std::vector<std::vector<std::byte>> Proxy::recordings() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::vector<std::byte>> all;
  for (const Pair& pair : pairs_) all.push_back(pair.recording);
  return all;
}

void Proxy::accept(const Front& front) {
  auto client = try_accept(front.listener.get());
  if (!client) return;
  try {
    UniqueFd server = connect_tcp(front.target, deadline_in(std::chrono::seconds(5)));
    set_nodelay(client->get());
    set_nodelay(server.get());
    set_nonblocking(client->get());
    set_nonblocking(server.get());
    Pair& pair = pairs_.emplace_back();
    pair.client = std::move(*client);
    pair.server = std::move(server);
    pair.out = {pair.client.get(), pair.server.get(), {}, false, &pair.recording};
    pair.back = {pair.server.get(), pair.client.get(), {}, false, nullptr};
  } catch (const Error&) {
    // The target has gone; so does the client.
  }
}

void Proxy::change(std::vector<std::byte>& bytes) {
  const std::uint64_t first = forwarded_;
  forwarded_ += bytes.size();
  if (change_.kind == ProxyChange::kNone || change_.at < first || change_.at >= forwarded_) return;
  const auto index = static_cast<std::size_t>(change_.at - first);
  if (change_.kind == ProxyChange::kFlip) {
    bytes[index] ^= static_cast<std::byte>(1U << change_.bit);
  } else {
    bytes.resize(index);
    cut_ = true;
  }
  changed_ = true;
}

// Moves what it can; false if the pair has ended.
bool Proxy::move(Direction& direction) {
  if (direction.pending.empty() && !direction.ended) {
    std::vector<std::byte> bytes(16 << 10);
    const ssize_t got = ::recv(direction.from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) {
      direction.ended = true;
      ::shutdown(direction.to, SHUT_WR);
    } else if (got < 0) {
      return errno == EAGAIN || errno == EINTR;
    } else {
      bytes.resize(static_cast<std::size_t>(got));
      if (direction.recording != nullptr) {
        direction.recording->insert(direction.recording->end(), bytes.begin(), bytes.end());
      }
      change(bytes);
      direction.pending = std::move(bytes);
    }
  }
  if (!direction.pending.empty()) {
    const ssize_t sent = ::send(direction.to, direction.pending.data(), direction.pending.size(),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    direction.pending.erase(direction.pending.begin(), direction.pending.begin() + sent);
  }
  if (cut_) {
    cut_ = false;
    return false;
  }
  return true;
}

void Proxy::serve() {
  while (true) {
    std::vector<pollfd> entries = {{wake_.read_end.get(), POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      for (const Front& front : fronts_) entries.push_back({front.listener.get(), POLLIN, 0});
      for (const Pair& pair : pairs_) {
        if (pair.dead) continue;
        for (const Direction* direction : {&pair.out, &pair.back}) {
          const bool reads = direction->pending.empty() && !direction->ended;
          entries.push_back({reads ? direction->from : -1, POLLIN, 0});
          entries.push_back({direction->pending.empty() ? -1 : direction->to, POLLOUT, 0});
        }
      }
    }
    if (::poll(entries.data(), entries.size(), -1) < 0) continue;
    char another = 0;
    if (entries[0].revents != 0 && ::read(wake_.read_end.get(), &another, 1) == 0) return;
    const std::lock_guard lock(mutex_);
    std::size_t i = 1;
    for (const Front& front : fronts_) {
      if (i < entries.size() && entries[i].fd == front.listener.get() && entries[i].revents != 0) {
        accept(front);
      }
      ++i;
    }
    for (Pair& pair : pairs_) {
      if (pair.dead) continue;
      const bool lives = move(pair.out) && move(pair.back);
      const bool over = pair.out.ended && pair.back.ended && pair.out.pending.empty() &&
                        pair.back.pending.empty();
      if (lives && !over) continue;
      pair.dead = true;
      pair.client.reset();
      pair.server.reset();
    }
  }
}

}  // namespace lockstep::testing
