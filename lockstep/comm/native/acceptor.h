// Where other ranks connect: accepts connections on its listeners, lets in those that prove the
// token, and hands each to whoever waits for it. A connection that proves nothing, in time, is
// dropped and keeps nobody waiting.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/rendezvous/strangers.h"
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
  // `connections` that may come at the same time.
  Acceptor(const Token& token, int connections);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  void open(UniqueFd listener, bool same_machine);
  // The connection announced by `hello`; Error(kTimeout) names the rank that did not come.
  Visitor await(const Hello& hello, Deadline deadline);

 private:
  struct OpenListener {
    UniqueFd fd;
    bool same_machine = false;
  };

  void serve();
  void admit(Strangers::Admitted admitted);

  Strangers strangers_;  // the thread's own
  Pipe wake_;            // a byte: another listener; its end: stop
  std::mutex mutex_;     // of all below
  std::condition_variable arrived_;
  std::map<Hello, Visitor> visitors_;
  std::vector<OpenListener> listeners_;
  std::thread thread_;
};

// The connecting side: proves the token on a connection that `connect` makes and says what it is
// for. Tried again until the deadline where the other side leaves before the proof; what `connect`
// throws is thrown.
UniqueFd connect_as(const Hello& hello, const std::function<UniqueFd()>& connect,
                    const Token& token, Deadline deadline);

}  // namespace lockstep
