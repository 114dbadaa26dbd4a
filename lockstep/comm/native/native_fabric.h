// The Fabric of ranks that are processes, on one machine or on several.
//
// Two ranks share a machine if one can reach the other through a local socket under a random name
// and pass it memory; host names prove nothing and are not asked. Every connection is proved with
// the job's token in both directions before anything on it is believed.
#pragma once

#include <functional>
#include <memory>
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
  std::string listen_host = "127.0.0.1";  // where other machines reach this rank
  // Deposits a text under a key and returns all ranks' texts for it.
  std::function<std::vector<std::string>(std::string_view key, const std::string& mine)> exchange;
};

std::shared_ptr<Fabric> make_native_fabric(const NativeWorld& world, const CommOptions& options);

}  // namespace lockstep
