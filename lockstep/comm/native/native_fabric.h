// The Fabric of ranks that are processes, on one node or several.
//
// Two ranks are on one node if one can connect to the other through a local socket with a random
// name and pass it memory; host names are not used. Both sides of every connection prove the job's
// token before anything else.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/native/fabric.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/rendezvous/token.h"

namespace lockstep {

struct NativeWorld {
  int rank = 0;
  int size = 1;
  Token token;
  std::string listen_host = "127.0.0.1";  // the address for other nodes
  // Exchanges texts: deposits `mine` under a key and returns the texts of all ranks.
  std::function<std::vector<std::string>(std::string_view key, const std::string& mine)> exchange;
  // Ends the fabric and its communicators with Error(kAborted). Other ranks get no message.
  std::stop_token stop = {};
};

std::shared_ptr<Fabric> make_native_fabric(const NativeWorld& world, const CommOptions& options);

}  // namespace lockstep
