// Connects the launcher of a node to node 0 again, after that was lost: it may take minutes until
// node 0 is started again, and this node's ranks are to be looked after meanwhile.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/rendezvous/node_link.h"

namespace lockstep {

class Reconnection {
 public:
  // Tries in a thread of its own until all nodes have joined, or the deadline. Errors that would
  // come again end it.
  Reconnection(const HostPort& server, const Token& token, int node, int nodes, std::string blob,
               Deadline deadline);
  // Gives up, without a wait.
  ~Reconnection();
  Reconnection(const Reconnection&) = delete;
  Reconnection& operator=(const Reconnection&) = delete;

  // Readable when it has ended. / Once: the link, or why there is none.
  int fd() const { return ended_.get(); }
  struct Result {
    std::unique_ptr<NodeLink> link;
    std::optional<Error> error;
  };
  std::optional<Result> take();

 private:
  void run(const HostPort& server, const Token& token, int node, int nodes, const std::string& blob,
           Deadline deadline);
  void end(Result result);

  UniqueFd ended_;
  std::mutex mutex_;  // guards the two below
  std::optional<Result> result_;
  int socket_ = -1;  // on which the thread waits
  std::atomic<bool> gives_up_ = false;
  std::jthread thread_;  // declared last: it uses all of the above
};

}  // namespace lockstep
