// The event loop that supervises the ranks of one node; see launcher.h for its behaviour.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/launch/coordinator.h"
#include "lockstep/launch/end_plan.h"
#include "lockstep/launch/job_link.h"
#include "lockstep/launch/launcher.h"
#include "lockstep/launch/node_setup.h"
#include "lockstep/launch/output.h"
#include "lockstep/launch/rank_process.h"
#include "lockstep/launch/reconnection.h"
#include "lockstep/launch/verdict.h"

namespace lockstep {

class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, NodeSetup& setup, UniqueFd lifeline);
  ~Supervisor();

  // Runs the job to its end and returns the exit code.
  int run();

 private:
  std::unique_ptr<RankProcess> start_rank(int local_rank);
  std::unique_ptr<RankProcess> start_process(SpawnRequest request, int rank);
  RankProcess::Sink sink_of(OutputPort& port, int rank) const;
  bool job_is_over() const;
  bool all_ranks_ended() const;
  Deadline due() const;
  void step(Deadline until);
  void clean_up();
  void flush_ports();

  void handle_signal(int signal);
  void reap();
  void judge();
  void report_if_ended();
  void handle_end(RankProcess& rank);
  // Whether the job continues without it: not if it ended because of a rank that the job needs.
  bool is_tolerated(const RankProcess& rank) const;
  bool waits_for_needed_rank() const;  // whether a rank that the job needs is running
  void report_failure(RankProcess& rank);
  std::string culprit_text(const RankProcess& rank) const;
  void report_end(RankProcess& rank);
  // Whether another rank has reported the same error before; otherwise prints its error, if any.
  bool repeats_an_error(RankProcess& rank);
  void tell_followers();
  void fail_by(const RankProcess& rank);
  void fail_here(std::string text, int exit_code);

  // Restarts (supervisor_restarts.cpp). A recovery lasts from a failure to the start of the next
  // generation: until all ranks of all nodes have ended or wait for it. Node 0's coordinator
  // decides about both. Every supervisor begins in the recovery before the first generation.
  void hear(RankProcess& rank);
  bool is_final(const RankProcess& rank) const;  // whether it ended with what would come again
  // Whether the job may recover from the end of a rank: node 0 is asked then.
  bool may_recover_from(RankProcess& rank);
  void end_during_recovery(RankProcess& rank);
  void advance_recovery();
  void recover(const JobMessage& message);
  void end_hung(const std::vector<int>& hung);
  void evict(const JobMessage& message);
  void end_stragglers();
  void start_generation(const JobMessage& message);
  std::vector<int> kept_ranks() const;

  // Elastic jobs (supervisor_elastic.cpp).
  void start_spares(const JobMessage& message);
  void report_pool();
  void handle_end_of_spare(RankProcess& spare);
  std::unique_ptr<RankProcess> take_spare(int rank);  // nullptr: none is warm
  void fit_ranks();  // to the number of the generation, before it starts
  int free_cpu_share() const;
  void hear_resize_request();
  std::vector<RankProcess*> processes() const;  // ranks and spares

  // The launchers of other nodes (supervisor_nodes.cpp).
  void hear_nodes();
  void hear_message(int node, const JobMessage& message);
  void hear_of_joining(int node, const std::string& text);
  void hear_of_leaving(int node);
  void rest(const JobMessage& message);
  void take_place(const JobMessage& message);  // of this node in a generation
  void coordinate();
  // Node 0 is lost: waits for it and joins it again.
  void advance_reconnection();
  void leave_job();

  void interrupt(int signal);
  void follow_request();
  void report_interruption();
  void follow_verdict();
  void handle_reader_gone();
  void become_firmer();

  void say(const std::string& text) {
    error_port_->put_line("lockstep: ", text);
    if (options_.hear_launcher) options_.hear_launcher(text);
  }
  std::string on_this_node() const;  // " on node 1", where there are several

  const LaunchOptions& options_;
  NodeSetup& setup_;
  UniqueFd lifeline_;
  UniqueFd signals_;
  OutputPort output_port_;
  OutputPort separate_error_port_;
  OutputPort* error_port_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::vector<std::unique_ptr<RankProcess>> spares_;       // and those that are not needed any more
  std::optional<Coordinator::Action::Failure> end_after_;  // the ranks have saved
  Deadline resize_due_ = kNoDeadline;                      // when to look for a request
  EndPlan plan_;
  int interrupted_by_ = 0;  // the signal that the ranks were sent, because of this node or another
  std::string interruption_;            // the words for it
  int asked_here_by_ = 0;               // the signal that this node was sent
  bool kills_ranks_ = false;            // it was asked twice
  bool to_be_continued_ = false;        // a rank has stopped and saved, as requested
  std::vector<RankProcess*> unjudged_;  // failed, but perhaps because of another
  Deadline judged_by_ = kNoDeadline;    // when to stop hoping for that one to end
  Verdict verdict_;
  bool announced_ = false;
  std::vector<const RankProcess*> followers_;  // failed after the culprit
  std::vector<int> repeaters_;                 // of these, with an error that was printed before
  std::set<std::string> told_errors_;
  JobLink job_link_;
  std::optional<Coordinator> coordinator_;  // on node 0
  bool is_recovering_ = true;
  bool is_decided_ = true;          // that the generation ends
  bool told_ready_ = true;          // that none of this node's ranks is busy
  bool ranks_leave_ = false;        // they were asked to, in this recovery
  Deadline kill_by_ = kNoDeadline;  // ranks that neither end nor wait in a recovery
  bool kills_stragglers_ = false;   // it has come
  std::optional<Reconnection> reconnection_;
};

}  // namespace lockstep
