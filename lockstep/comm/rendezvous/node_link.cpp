#include "lockstep/comm/rendezvous/node_link.h"

#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {

using namespace rendezvous;

NodeLink::NodeLink(const HostPort& server, const Token& token, int node, int nodes,
                   std::string_view blob, Deadline deadline)
    : client_(connect_to_server(server, token, deadline)) {
  join(node, nodes, blob, deadline);
}

void NodeLink::join(int node, int nodes, std::string_view blob, Deadline deadline) {
  blobs_ = exchange_on(client_, Group::kNodes, "nodes", node, nodes, blob, deadline);
}

void NodeLink::tell(std::string_view text, Deadline deadline) {
  const std::string frame = FrameWriter(Kind::kTell).text(text).finish();
  client_.stream.send(std::as_bytes(std::span(frame)), deadline);
}

std::vector<NodeLink::News> NodeLink::news() {
  std::vector<News> all;
  if (!client_.stream.is_open()) return all;
  bool present = false;
  try {
    present = client_.incoming.fill_from(client_.stream);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorrupted) throw;
    log_error(
        "data from the launcher of node 0 is corrupted: {}; the network or the memory of one "
        "of the machines is faulty",
        error.what());
  }
  while (auto bytes = client_.incoming.next()) {
    FrameReader frame(*bytes);
    const int node = frame.small_number();
    if (frame.kind() == Kind::kTold) {
      all.push_back({.node = node, .text = std::string(frame.text())});
    } else if (frame.kind() == Kind::kLeft) {
      all.push_back({.node = node, .left = true});
    } else if (frame.kind() == Kind::kJoined) {
      all.push_back({.node = node, .joined = true, .text = std::string(frame.text())});
    }
  }
  if (!present) {
    all.push_back({.node = 0, .left = true});
    client_.stream.close();
  }
  return all;
}

}  // namespace lockstep
