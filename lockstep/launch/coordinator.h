// Decides for all nodes of a job when a generation ends and when the next begins. Node 0's
// supervisor has it. No I/O: it hears what has happened, and advance() says what to do.
//
//   runs       a rank or a whole node is lost, or ranks have lost each other: takes a restart from
//              the budget, or ends the job
//   recovers   until every node has reported that none of its ranks is busy; one that has left has
//              until the rejoin timeout to come back. Then the next generation begins.
//
// In an elastic job every node has a *target* number of ranks, and a *pool* of spares. While a node
// has fewer ranks than the target, or fewer spares than it should, a restart of the budget starts
// another spare.
// When a rank is lost, a warm spare takes its place, else a restart of the budget does, else the
// next generation has fewer ranks. When the number of ranks differs from the target, and the spares
// for that are warm, all ranks stop after a step and the next generation has the new number. Ranks
// that keep nothing in memory and cannot save their states stay as they are instead.
//
// A node that does not come back in time is *left out* of an elastic job: the next generation
// begins with the ranks of the others. When it joins again it *rests*: it has no ranks in the
// generation that runs, and its target makes the job grow.
//
// It begins in the recovery before the first generation: all nodes have joined, or as many as an
// elastic job needs.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/system/deadline.h"
#include "lockstep/launch/job_message.h"
#include "lockstep/launch/restart_budget.h"

namespace lockstep {

class Coordinator {
 public:
  struct Options {
    int nodes = 1;
    int ranks_per_node = 1;
    int restarts = 0;
    bool has_links = false;  // LaunchOptions::Restarts::has_links
    int least = 0;           // LaunchOptions::Elastic, as the next two
    int least_nodes = 0;
    int spares = 0;
    std::chrono::milliseconds grace{0};
    std::chrono::milliseconds rejoin_timeout{0};
  };
  // `facts` of all nodes, in order. One that is not there has no ranks.
  Coordinator(const Options& options, std::span<const NodeFacts> facts);

  // Rank 0 has done a step. / A rank has ended well.
  void reach(std::int64_t step, Deadline now);
  void finish(int rank) { finished_.insert(rank); }
  std::int64_t furthest() const { return budget_.furthest(); }

  void hear(int node, const JobMessage& message, Deadline now);
  void leave(int node, Deadline now);
  // Whether it is here for a generation to come.
  bool counts_on(int node) const;
  void join(int node, const NodeFacts& facts, Deadline now);
  // Why an elastic job cannot have that many ranks; empty: it can.
  std::string refusal_of(int ranks) const;

  // What to do now, in this order; to be asked again after it was done.
  struct Action {
    std::optional<JobMessage> tell;  // all nodes
    std::vector<std::string> say;    // on this node
    struct Failure {
      std::string text;
      int exit_code = 1;
    };
    std::optional<Failure> end;  // the job
    // The same, when the ranks of the generation that begins have saved.
    std::optional<Failure> end_after;
    bool stop = false;  // the job, as it was asked to
  };
  std::optional<Action> advance(Deadline now, bool asked_to_stop);
  // When to ask again, whatever happens.
  Deadline due() const;

 private:
  struct Node {
    bool is_here = true;
    bool is_ready = true;
    bool is_left_out = false;
    std::vector<int> kept;
    Deadline due = kNoDeadline;  // to come back, or to be ready
    int ranks = 0;               // of the generation, or of the one before
    int target = 0;              // ranks
    int failed = 0;              // ranks, in this recovery
    int warm = 0;                // spares
    int starting = 0;            // likewise
  };
  struct Loss {
    JobMessage message;
    Deadline decide_by;                // for a report of the one that is to blame
    bool is_said = false;              // on this node
    Deadline notice_by = kNoDeadline;  // for ranks, where they have known for a while
  };
  struct Waiting {
    int rank = 0;
    std::string why;
    std::vector<int> hung;
  };

  // The sum over all nodes.
  int total(int Node::*number) const;
  int count_here() const;  // nodes that are not left out
  int first_rank(int node) const;
  int node_of(int rank) const;
  std::vector<int> counts() const;  // JobMessage::counts
  int least_nodes() const;
  int least_ranks() const { return options_.least * least_nodes(); }
  std::string asked_size() const;  // as the flags say it

  std::chrono::nanoseconds time_to_notice() const;
  std::string ranks_of(int node) const;
  bool is_waiting(int rank) const;
  void consider_waiting(Deadline now);
  Action end_generation(Deadline now);
  std::optional<Action> recover(Deadline now, bool asked_to_stop);
  std::optional<Action> await_nodes(Deadline now, bool asked_to_stop);
  Action begin(bool any_kept);
  bool is_elastic() const { return options_.least > 0; }
  int count_replacements(const Node& node) const;  // spares that would be one too few
  void resize(int ranks);
  // Whether it is absent, and the job may continue without it when it does not come back in time.
  bool may_be_left_out(int node) const;
  bool any_is_busy() const;  // of the nodes that are here
  void leave_out_absent(Deadline now, bool asked_to_stop);
  void rest(int node);
  std::string too_few(int ranks, bool is_on_first_node) const;
  std::optional<Action> adapt(Deadline now, bool asked_to_stop);
  void evict(const JobMessage& slow);
  void stay(const JobMessage& stays);
  Action regrouped(Deadline now);
  Action begin_adapted(bool any_kept, bool asked_to_stop);
  std::string most_restarts() const;
  std::string restarts_left() const;
  void prepare(JobMessage message);
  void prepare_notice(std::string text);

  Options options_;
  RestartBudget budget_;
  std::vector<Node> nodes_;
  std::string job_;
  int generation_ = -1;  // -1: none has begun
  bool recovers_ = true;
  bool has_begun_ = false;    // a generation
  std::deque<Action> next_;   // before anything else
  std::optional<Loss> loss_;  // while it runs
  std::vector<Waiting> waiting_;
  std::set<int> finished_;
  int size_ = 0;              // ranks of the generation, or of the one before
  int free_starts_ = 0;       // of spares, besides the restarts of the budget
  bool lost_a_node_ = false;  // in this recovery
  bool regroups_ = false;     // ranks were asked to stop after a step
  int regroup_requests_ = 0;  // of this generation
  std::set<int> regrouped_;   // have done so
  std::optional<Action::Failure>
      failure_;                     // that ended the last generation; nothing: they regrouped
  Deadline lost_by_ = kNoDeadline;  // when ranks that wait are enough to end a generation
  bool told_absence_ = false;
  std::optional<std::chrono::steady_clock::time_point> last_step_;  // of this generation
  std::chrono::nanoseconds longest_step_{0};                        // with what comes between steps
};

}  // namespace lockstep
