// The connection between the launchers of a job's nodes: broadcasts texts, and reports nodes that
// are lost and that come back.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/rendezvous/client.h"

namespace lockstep {

class NodeLink {
 public:
  struct News {
    int node = 0;
    bool left = false;    // the node's launcher has closed its link, or is dead
    bool joined = false;  // a launcher of the node has joined again
    std::string text;     // its text, or the blob of one that has joined
  };

  // Waits until the launchers of all nodes have joined, or as many as the server needs
  // (RendezvousOptions::least_nodes); blobs()[k] is the blob of node k, empty for one that has not
  // joined. Where they had joined before, it takes the place of the launcher of this node that has
  // left, and waits for that to leave. Errors: see exchange() in rendezvous.h; kTimeout that names
  // this node: the other launcher has not left.
  NodeLink(const HostPort& server, const Token& token, int node, int nodes, std::string_view blob,
           Deadline deadline);
  // The same in two steps. While the second waits, another thread may shut the socket down, which
  // ends it with Error(kPeerLost).
  explicit NodeLink(rendezvous::Client client) : client_(std::move(client)) {}
  void join(int node, int nodes, std::string_view blob, Deadline deadline);

  const std::vector<std::string>& blobs() const { return blobs_; }

  // Sends a text to all nodes, including this one, which thereby knows that the server has
  // delivered it. All nodes receive all texts, and who leaves and joins, in the same order.
  void tell(std::string_view text, Deadline deadline);

  // The descriptor to poll for POLLIN. / Receives what has arrived, without waiting. If the server
  // is lost, or bytes of it were changed on their way, reports once that its node, 0, has left.
  int fd() const { return client_.stream.fd(); }
  bool is_open() const { return client_.stream.is_open(); }
  void close() { client_.stream.close(); }
  std::vector<News> news();

 private:
  rendezvous::Client client_;
  std::vector<std::string> blobs_;
};

}  // namespace lockstep
