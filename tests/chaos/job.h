// A job of `lockstep train` into which faults are injected: its launchers, its ranks and its files.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "tests/launch/hosts.h"

namespace lockstep::chaos {

// What the results of a job are beside those of one that nobody disturbed.
enum class Promise {
  kSameBits,
  kNearLosses,  // of every step, once
  kLaterSteps,  // every line of metrics is of a later step than the one before, up to the last
};

// What a job computes, and on what.
struct Kind {
  std::string name;
  std::string settings;
  Promise promise = Promise::kSameBits;
  int nodes = 1;            // with a launcher each
  bool has_hosts = false;   // every node is a network namespace
  bool is_elastic = false;  // ranks and nodes that are lost are not replaced
};

// Where jobs run. All outlive them.
struct Place {
  std::filesystem::path folder;      // of a scratch
  std::filesystem::path small_disk;  // a file system of a few MB; empty: there is none
  testing::Hosts* hosts = nullptr;   // two; nullptr: there are none
  std::string address;               // of the rendezvous of nodes that are no hosts
};

class Job {
 public:
  static constexpr int kRanks = 4;
  static constexpr std::int64_t kSteps = 300;

  Job(const Kind& kind, const Place& place, const std::filesystem::path& folder);
  ~Job();  // kills what still runs
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const Kind& kind() const { return kind_; }
  const Place& place() const { return place_; }
  const std::filesystem::path& folder() const { return folder_; }  // run.dir

  // Starts the launchers of all nodes, or of one; again with the same command.
  void start();
  void start_node(int node);
  // Of the launcher, not of its ranks.
  void signal_node(int node, int signal) const;
  // Kills both processes of the launcher at once, as when a node goes down.
  void kill_node(int node);

  // All processes of the job but the launchers that were started here. / Those that are ranks; of a
  // rank that is just being replaced there is none.
  std::vector<pid_t> processes() const;
  std::vector<pid_t> rank(int rank) const;

  // Whether no launcher runs. / Whether all ended with 0, and the exit codes as a text.
  bool has_ended();
  bool ended_well() const;
  std::string exit_codes() const;

  // Runs `lockstep resize`.
  void resize(int ranks) const;

  // Files by which the faulty system (tests/chaos/faulty_system.cpp) is told what to do.
  std::filesystem::path trigger(const std::string& of) const { return folder_.string() + "." + of; }

  // The last step in metrics.jsonl; 0: none.
  std::int64_t last_step() const;
  // "step ..., loss ...", of every line of metrics.jsonl.
  std::vector<std::string> losses() const;
  // The files of states in the checkpoint of the last step, by name.
  std::map<std::string, std::string> states() const;
  std::string logs() const;

  // Connections of strangers to the job, open until it ends.
  std::vector<UniqueFd> strangers;

 private:
  std::filesystem::path log(int node) const;
  std::string command(int node) const;

  struct Launcher {
    pid_t pid = 0;  // 0: it does not run
    int exit_code = -1;
  };

  const Kind& kind_;
  const Place& place_;
  std::filesystem::path folder_;
  std::vector<Launcher> launchers_;
};

}  // namespace lockstep::chaos
