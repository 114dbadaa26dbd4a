// Where other ranks knock: accepts connections on its listeners, lets in those that prove the
// token, and hands each to whoever waits for it. A knock that proves nothing, in time, is dropped
// and keeps nobody waiting.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/rendezvous/token.h"

namespace lockstep {

enum class Purpose : std::uint32_t { kControl, kCollective, kPointToPoint };

// What a connection is for; the first thing said on it after both sides have proved themselves.
struct Hello {
  std::uint64_t tag = 0;  // of the communicator
  std::int32_t from = -1;
  Purpose purpose = Purpose::kControl;
  friend auto operator<=>(const Hello&, const Hello&) = default;
};

struct Visitor {
  UniqueFd socket;
  bool same_machine = false;  // came through a listener that only this machine can reach
};

class Acceptor {
 public:
  explicit Acceptor(const Token& token) : token_(token) {}
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  void open(UniqueFd listener, bool same_machine);
  // The connection announced by `hello`; Error(kTimeout) names the rank that did not come.
  Visitor await(const Hello& hello, Deadline deadline);

 private:
  void accept_from(int listener, bool same_machine);
  void greet(UniqueFd socket, bool same_machine);

  Token token_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Hello, Visitor> visitors_;
  int greeting_ = 0;
  std::atomic<bool> closing_{false};
  std::list<UniqueFd> listeners_;
  std::vector<std::thread> threads_;
};

// The knocking side: proves the token on a fresh connection and says what it is for.
void knock(int socket, const Token& token, const Hello& hello, Deadline deadline);

}  // namespace lockstep
