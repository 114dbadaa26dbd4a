// What ended the job.
//
// Many ranks fail when one does. The *culprit* is the first failure that was reported; with several
// nodes, the launchers tell each other through a NodeLink, all hear all reports in the same order,
// and so all name the same culprit. What this node saw first is its *suspect* until then. Where no
// rank failed but some have stopped because a node was asked to, that is to blame once all nodes
// have said how their ranks ended.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/rendezvous/node_link.h"

namespace lockstep {

class Verdict {
 public:
  struct Culprit {
    std::string text;  // "rank 3 on node 1 (pid 12) exited with code 7"
    int exit_code = 1;
    bool is_stop = false;  // nobody failed: ranks have stopped as they were asked, to be continued
  };
  // Somebody asked a node to stop.
  struct StopRequest {
    int signal = 0;
    std::string text;  // "interrupted on node 1 by SIGINT"
  };

  // `link` may be null, where there is one node.
  Verdict(NodeLink* link, int nodes) : link_(link), nodes_(nodes) {}

  void report_request(const StopRequest& request);
  // This node's ranks have all ended well, or at least one to be continued. / Something went wrong
  // here.
  void report_success();
  void report_stopped();
  void report(Culprit suspect);

  // The first one of all nodes.
  const std::optional<StopRequest>& stop_request() const { return stop_request_; }
  // Whether anything has gone wrong that we know of.
  bool is_failure() const { return suspect_ || culprit_; }
  // Set once it is settled.
  const std::optional<Culprit>& culprit() const { return culprit_; }
  bool culprit_is_elsewhere() const;
  bool all_nodes_succeeded() const { return !stopped_ && all_nodes_ended(); }

  // To be polled for POLLIN, -1 when there is none. / Takes in what has come.
  int fd() const { return link_ != nullptr ? link_->fd() : -1; }
  void hear();

  // When to stop hoping for the other nodes' opinion. / Stops hoping, if it is time.
  Deadline settled_by() const { return settled_by_; }
  void settle_if_due();

 private:
  bool all_nodes_ended() const;
  void hear_of_leaving(int node);
  void settle_if_stopped();
  void convict(const Culprit& culprit);
  void tell(std::string_view text);

  NodeLink* link_;
  int nodes_;
  std::optional<Culprit> suspect_;
  std::optional<Culprit> culprit_;
  Deadline settled_by_ = kNoDeadline;
  std::optional<StopRequest> stop_request_;
  bool told_end_ = false;
  bool stopped_ = false;       // some ranks, to be continued
  std::set<int> ended_nodes_;  // without a failure
  std::set<int> failed_nodes_;
};

}  // namespace lockstep
