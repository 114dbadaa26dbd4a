// What ties the launchers of a job's nodes together: each hears what the others tell, and when one
// has gone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/rendezvous/client.h"

namespace lockstep {

class NodeLink {
 public:
  struct News {
    int node = 0;
    bool left = false;  // the node's launcher has ended its link, or is dead
    std::string text;   // what it told, when it has not left
  };

  // Waits until the launchers of all nodes have come; blobs()[k] is what node k brought.
  // Errors as exchange() in rendezvous.h.
  NodeLink(const HostPort& server, const Token& token, int node, int nodes, std::string_view blob,
           Deadline deadline);

  const std::vector<std::string>& blobs() const { return blobs_; }

  // Tells all nodes. The teller hears it too, and then knows that the server has passed it on.
  // All nodes hear all that is told in the same order.
  void tell(std::string_view text, Deadline deadline);

  // To be polled for POLLIN. / What has come, without waiting. When the server itself has gone, the
  // news is that its node, 0, has left, once.
  int fd() const { return client_.fd.get(); }
  std::vector<News> news();

 private:
  rendezvous::Client client_;
  std::vector<std::string> blobs_;
};

}  // namespace lockstep
