// Accepts connections of other ranks on its listeners and hands each one that proves the token to
// the caller that awaits it. A connection that does not prove the token in time is dropped and
// delays no other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/rendezvous/strangers.h"
#include "lockstep/comm/rendezvous/token.h"

namespace lockstep {

enum class Purpose : std::uint32_t { kControl, kCollective, kPointToPoint };

// The purpose of a connection; the greeting of its handshake.
struct Hello {
  std::uint64_t tag = 0;  // of the communicator
  std::int32_t from = -1;
  Purpose purpose = Purpose::kControl;
  friend auto operator<=>(const Hello&, const Hello&) = default;
};

struct Visitor {
  UniqueFd socket;
  Protection protection;
  bool same_machine = false;  // accepted by a listener that only this machine can reach
};

class Acceptor {
 public:
  // `connections`: how many may arrive at the same time.
  Acceptor(const Token& token, int connections, const EncryptionPolicy& policy = {});
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  void open(UniqueFd listener, bool same_machine);
  // The connection announced by `hello`. Throws Error(kTimeout) with the rank that did not connect,
  // and Error(kAborted) after a stop request.
  Visitor await(const Hello& hello, Deadline deadline, const std::stop_token& stop = {});

 private:
  struct OpenListener {
    UniqueFd fd;
    bool same_machine = false;
  };

  void serve();
  void admit(Strangers::Admitted admitted);

  Strangers strangers_;  // used by the thread only
  Pipe wake_;            // a byte: another listener; its end: stop
  std::mutex mutex_;     // guards all below
  std::condition_variable_any arrived_;
  std::map<Hello, Visitor> visitors_;
  std::vector<OpenListener> listeners_;
  std::thread thread_;
};

// The connecting side: proves the token on a connection that `connect` makes, with the Hello.
// Retries until the deadline if the other side closes before the proof; errors of `connect` are
// thrown.
ProvenSocket connect_as(const Hello& hello, const std::function<UniqueFd()>& connect,
                        const Token& token, Deadline deadline, const EncryptionPolicy& policy = {},
                        const std::stop_token& stop = {});

}  // namespace lockstep
