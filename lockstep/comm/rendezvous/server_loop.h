// The thread of RendezvousServer: one poll() over all clients; it never blocks on one of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/comm/rendezvous/connection.h"
#include "lockstep/comm/rendezvous/gathering.h"
#include "lockstep/comm/rendezvous/rendezvous.h"
#include "lockstep/comm/rendezvous/strangers.h"

namespace lockstep::rendezvous {

class ServerLoop {
 public:
  ServerLoop(const HostPort& listen, const Token& token, int size, RendezvousOptions options);
  ~ServerLoop();

  const HostPort& address() const { return listener_.address; }
  std::size_t dropped() const { return dropped_; }

 private:
  void serve();
  void wait(Deadline until);
  void admit(Strangers::Admitted admitted);
  void serve_client(ClientId id, short events);
  void obey(ClientId id, const std::string& bytes);
  void deposit(ClientId id, FrameReader& frame);
  void deliver(const Gathered& gathered, bool is_node);
  void settle_nodes();
  void take_back(ClientId id, Deposit deposit);
  void welcome_back(int node);
  void refuse(ClientId id, const Error& error);
  void remove(ClientId id);
  void drop(ClientId id, std::string_view why);
  void note_drop(std::string_view peer, std::string_view why);
  void tell_nodes(const std::string& frame);
  void give_notice();
  Deadline next_moment() const;
  bool has_output() const;

  RendezvousOptions options_;
  Listener listener_;
  UniqueFd wake_;
  Strangers strangers_;
  std::map<ClientId, Connection> clients_;  // the oldest first
  ClientId next_id_ = 0;
  Gatherings ranks_;
  Gatherings nodes_;
  std::map<ClientId, int> node_of_;   // clients that have joined as nodes
  std::vector<std::string> blobs_;    // of all nodes, once they have joined
  std::string nodes_key_;             // of their exchange
  Deadline nodes_due_ = kNoDeadline;  // when it completes without those that have not come
  // Clients that join again as nodes whose former connection has not ended yet.
  struct Returning {
    ClientId client;
    std::string blob;
  };
  std::map<int, Returning> returning_;
  std::atomic<std::size_t> dropped_ = 0;
  std::size_t unmentioned_ = 0;
  std::string last_drop_;
  Deadline next_notice_ = Deadline::min();
  bool stopping_ = false;  // used by the thread; set through wake_
  std::jthread thread_;    // declared last: it uses all of the above
};

}  // namespace lockstep::rendezvous
