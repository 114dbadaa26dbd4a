// How the parts of a server reach its peers. What is for one that has gone is dropped.
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
