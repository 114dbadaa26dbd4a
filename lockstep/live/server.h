// Serves the live page of runs over HTTP.
//
//   /                the page (page.h)
//   /api/news        server-sent events: the messages of run_follower.h as they come, of the runs
//                    named by "run", or those that changed last; first, and whenever there are
//                    others, {"type":"runs","all":[...],"shown":[...]}
//   /api/part        steps of a run in full: run, axis (step, tokens or seconds), from, to, points
//   /metrics         prometheus.h
//
// Every request needs the token, as ?token=... or as "Authorization: Bearer ..."; others get 403,
// and so does a Host header that is not known (access.h). Nothing but GET is answered. No part of a
// request ever becomes a path of the file system: runs are named by the ids that were found.
//
// A client occupies one of a fixed number of threads. One that does not read, or does not send its
// request, is disconnected after some seconds.
#pragma once

#include <memory>
#include <string>

#include "lockstep/live/runs.h"

namespace lockstep::live {

struct ServerOptions {
  std::string address = "127.0.0.1";
  int port = 0;  // 0: any free one
  std::string token;
};

class Server {
 public:
  // Binds. Throws Error(kSystem) where the port is taken, and Error(kInvalidArgument) for an
  // address that is not this machine's. `runs` outlives the server.
  Server(const Runs& runs, const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  // With the token: where a browser of this machine finds the page.
  std::string link() const;

  // Answers requests until stop(), which any other thread may call, before serve() too.
  void serve();
  void stop();
  // How many readers have not received all news up to this version of `runs`.
  int readers_behind(std::uint64_t version) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::live
