// A man in the middle: forwards TCP connections, counts their bytes and changes some.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/net/host_port.h"
#include "lockstep/base/net/socket.h"

namespace lockstep::testing {

// What happens to byte `at`, counted over all connections in the order in which they are
// forwarded.
struct ProxyChange {
  enum Kind { kNone, kFlip, kCut } kind = kNone;
  std::uint64_t at = 0;
  int bit = 0;
};

class Proxy {
 public:
  explicit Proxy(const ProxyChange& change = {});
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  // The address at which the proxy forwards to `target`.
  HostPort front(const HostPort& target);

  std::uint64_t forwarded() const { return forwarded_; }
  bool has_changed() const { return changed_; }
  // Everything that clients have sent, by connection, in the order of connecting.
  std::vector<std::vector<std::byte>> recordings() const;

 private:
  struct Direction {
    int from = -1;
    int to = -1;
    std::vector<std::byte> pending;
    bool ended = false;  // `from` has ended and `to` knows it
    std::vector<std::byte>* recording = nullptr;
  };
  struct Pair {
    UniqueFd client;
    UniqueFd server;
    std::vector<std::byte> recording;
    Direction out;
    Direction back;
    bool dead = false;
  };
  struct Front {
    UniqueFd listener;
    HostPort target;
  };

  void serve();
  void accept(const Front& front);
  bool move(Direction& direction);
  void change(std::vector<std::byte>& bytes);

  ProxyChange change_;
  std::atomic<std::uint64_t> forwarded_{0};
  std::atomic<bool> changed_{false};
  bool cut_ = false;
  Pipe wake_;
  mutable std::mutex mutex_;  // guards fronts_ and pairs_
  std::list<Front> fronts_;
  std::list<Pair> pairs_;
  std::thread thread_;
};

}  // namespace lockstep::testing
