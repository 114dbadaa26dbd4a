// `lockstep bench data-parallel`: the cost and gain of data-parallel training.
//
// Every number comes from runs of `lockstep train`, each a process started as a user would, and
// from what they write about themselves: metrics.jsonl, event files, traces, checkpoints. A *case*
// is one question; it runs a few *settings* by turns, so that what disturbs the machine disturbs
// all alike, and compares them with its *bars*.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::bench {

struct DataParallelBench {
  std::vector<std::string> cases;     // names; empty: all
  std::string model = "gpt2-124m";    // that is timed; left out where settings describe one
  std::vector<std::string> settings;  // key=value of every run, over those of the case
  int ranks = 2;                      // of scaling, and its threads on one rank
  int batch = 0;                      // sequences of a step that is timed; 0: the case's
  int sequence = 0;                   // tokens of each; 0: the case's
  int steps = 0;                      // of each run; 0: the case's
  int runs = 2;                       // of each setting that is timed, by turns
  std::string link;                   // "1Gbit,100us"; empty: found by measuring
  std::filesystem::path text;         // of the recipe; empty: losses are not compared
  bool all = false;                   // every codec
  bool peers = false;
  std::string python;
  std::filesystem::path json;          // empty: none
  std::filesystem::path command;       // the `lockstep` program that trains
  std::filesystem::path peers_folder;  // of the peers' scripts
};

// Every case's name, in the order in which they are run.
std::vector<std::string_view> data_parallel_cases();

// Runs, prints a table for each case as it is done, writes the JSON. False where a run of ours
// failed; bars that are not met are results, not failures. Throws Error(kAborted) when interrupted,
// after printing the results of the current case so far, and Error(kInvalidArgument) for invalid
// settings.
bool run_data_parallel(const DataParallelBench& bench);

}  // namespace lockstep::bench
