// Finds the cause of the end of a job.
//
// Many ranks fail when one does. The *culprit* is the first failure that was reported; with several
// nodes, launchers exchange reports through a JobLink, which delivers them in the same order to
// all, so all name the same culprit. Until then, the first failure on this node is its *suspect*.
// If no rank failed but some have stopped because a node was asked to, that request is the cause,
// once all nodes have reported.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "lockstep/base/system/deadline.h"
#include "lockstep/launch/job_link.h"

namespace lockstep {

class Verdict {
 public:
  struct Culprit {
    std::string text;  // "rank 3 on node 1 (pid 12) exited with code 7"
    int exit_code = 1;
    bool is_stop = false;  // no rank failed: ranks have stopped and saved, as requested
  };
  // A request to stop a node.
  struct StopRequest {
    int signal = 0;
    std::string text;  // "interrupted on node 1 by SIGINT"
  };

  Verdict(JobLink& link, int nodes) : link_(link), nodes_(nodes) {}

  // Forgets how ranks of earlier generations ended. Nodes that are left out have no ranks in
  // this one.
  void begin_generation(int generation, std::set<int> left_out = {});

  void report_request(const StopRequest& request);
  // This node's ranks have all ended well, or at least one to be continued. / Something went wrong
  // here.
  void report_success();
  void report_stopped();
  void report(Culprit suspect);

  // The first one of all nodes.
  const std::optional<StopRequest>& stop_request() const { return stop_request_; }
  // Whether a failure is known.
  bool is_failure() const { return suspect_ || culprit_; }
  // Set once it is settled.
  const std::optional<Culprit>& culprit() const { return culprit_; }
  bool culprit_is_elsewhere() const;
  bool all_nodes_succeeded() const { return !stopped_ && all_nodes_ended(); }

  // Takes in a text of a node; false if it is none of ours.
  bool hear(int node, const std::string& text);
  // Whether a node that has left is missed: not if it had reported how its ranks ended, and is not
  // needed to pass on reports. / Ends the job because of it.
  bool misses(int node) const;
  void end_without(int node);

  // When to stop waiting for the other nodes. / Settles the culprit, if it is time, or at once.
  Deadline settled_by() const { return settled_by_; }
  void settle_if_due();
  void settle();

 private:
  bool all_nodes_ended() const;
  void settle_if_stopped();
  void convict(const Culprit& culprit);

  JobLink& link_;
  int nodes_;
  int generation_ = 0;
  std::optional<Culprit> suspect_;
  std::optional<Culprit> culprit_;
  Deadline settled_by_ = kNoDeadline;
  std::optional<StopRequest> stop_request_;
  bool told_end_ = false;
  bool stopped_ = false;       // some ranks, to be continued
  std::set<int> left_out_;     // nodes
  std::set<int> ended_nodes_;  // without a failure
  std::set<int> failed_nodes_;
};

}  // namespace lockstep
