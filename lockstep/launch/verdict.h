// What ended the job.
//
// Many ranks fail when one does. The *culprit* is the first failure that was reported; with several
// nodes, the launchers tell each other through a NodeLink, all hear all reports in the same order,
// and so all name the same culprit. What this node saw first is its *suspect* until then.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/comm/rendezvous/node_link.h"

namespace lockstep {

class Verdict {
 public:
  struct Culprit {
    std::string text;  // "rank 3 on node 1 (pid 12) exited with code 7"
    int exit_code = 1;
  };

  // `link` may be null, where there is one node.
  Verdict(NodeLink* link, int nodes) : link_(link), nodes_(nodes) {}

  // This node's ranks have all ended well. / Something went wrong here.
  void report_success();
  void report(Culprit suspect);

  // Whether anything has gone wrong that we know of.
  bool is_failure() const { return suspect_ || culprit_; }
  // Set once it is settled.
  const std::optional<Culprit>& culprit() const { return culprit_; }
  bool culprit_is_elsewhere() const;
  bool all_nodes_succeeded() const;

  // To be polled for POLLIN, -1 when there is none. / Takes in what has come.
  int fd() const { return link_ != nullptr ? link_->fd() : -1; }
  void hear();

  // When to stop hoping for the other nodes' opinion. / Stops hoping, if it is time.
  Deadline settled_by() const { return settled_by_; }
  void settle_if_due();

 private:
  void convict(const Culprit& culprit);
  void tell(const std::string& text);

  NodeLink* link_;
  int nodes_;
  std::optional<Culprit> suspect_;
  std::optional<Culprit> culprit_;
  Deadline settled_by_ = kNoDeadline;
  bool told_success_ = false;
  std::set<int> successful_nodes_;
  std::set<int> failed_nodes_;
};

}  // namespace lockstep
