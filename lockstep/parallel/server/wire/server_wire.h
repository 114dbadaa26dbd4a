// Sends messages of a server to its peers. Messages to a lost peer are dropped.
#pragma once

#include "lockstep/parallel/server/slices/message.h"

namespace lockstep::parallel {

class ServerWire {
 public:
  virtual ~ServerWire() = default;
  virtual void to_worker(int worker, OutMessage message) = 0;   // on its data connection
  virtual void to_control(int worker, OutMessage message) = 0;  // of server 0 only
  virtual void to_server(int server, OutMessage message) = 0;   // may be this one
};

}  // namespace lockstep::parallel
