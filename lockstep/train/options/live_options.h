// The live page of a run (live/server.h).
#pragma once

#include <string>

#include "lockstep/base/config/config.h"

namespace lockstep::train {

struct LiveOptions {
  int port = 0;  // 0: no page
  std::string address = "127.0.0.1";
  std::string token_file;  // empty: a new token for every process
};
// Declares the keys live.*.
void bind(Config& config, LiveOptions& options);

}  // namespace lockstep::train
