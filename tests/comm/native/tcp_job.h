// A job whose ranks are threads of the test but behave as processes of different machines: each has
// its own fabric, and everything between them, the rendezvous included, goes over TCP.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/net/host_port.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/rendezvous/token.h"

namespace lockstep::testing {

struct TcpJob {
  int ranks = 3;
  CommOptions options;
  std::vector<Token> tokens;  // by rank; the rendezvous server has the first
  // Called for every address at which something of the job listens; returns the address that others
  // are given instead.
  std::function<HostPort(const HostPort&)> publish = [](const HostPort& address) {
    return address;
  };
  std::stop_token stop = {};                             // of rank 0
  std::function<void(int rank)> has_contacts = nullptr;  // called on each; unset: nothing
};

// Small messages, forced algorithms and short timeouts.
TcpJob quick_job(int ranks, EncryptChoice encrypt);

// Runs the body on all ranks; returns how each ended: nothing, or its error.
std::vector<std::optional<Error>> run_job(const TcpJob& job,
                                          const std::function<void(Communicator&)>& body);

// Collectives and messages of several sizes with known results. Returns false at a wrong one.
bool results_are_right(Communicator& world);

}  // namespace lockstep::testing
