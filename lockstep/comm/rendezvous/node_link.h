// The connection between the launchers of a job's nodes: broadcasts texts, and reports lost nodes.
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
    bool left = false;  // the node's launcher has closed its link, or is dead
    std::string text;   // its text, unless it has left
  };

  // Waits until the launchers of all nodes have joined; blobs()[k] is the blob of node k. Errors:
  // see exchange() in rendezvous.h.
  NodeLink(const HostPort& server, const Token& token, int node, int nodes, std::string_view blob,
           Deadline deadline);

  const std::vector<std::string>& blobs() const { return blobs_; }

  // Sends a text to all nodes, including this one, which thereby knows that the server has
  // delivered it. All nodes receive all texts in the same order.
  void tell(std::string_view text, Deadline deadline);

  // The descriptor to poll for POLLIN. / Receives what has arrived, without waiting. If the server
  // is lost, or bytes of it were changed on their way, reports once that its node, 0, has left.
  int fd() const { return client_.stream.fd(); }
  std::vector<News> news();

 private:
  rendezvous::Client client_;
  std::vector<std::string> blobs_;
};

}  // namespace lockstep
