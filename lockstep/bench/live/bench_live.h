// `lockstep bench live`: what the live page costs the run that it shows, how far it is behind, and
// how fast it shows a long one.
//
//   load    A run of many steps, as a job of several ranks writes them, is made in a folder. Timed
//           is from the start of `lockstep watch` until a reader has all of it.
//   train   A job of several ranks trains. Windows of some seconds with and without a page and its
//           reader take turns (without, with, with, without), so that a machine that is busy with
//           other things is as busy for both. Compared are steps per second of neighbours. With
//           the page, every step is timed from its line in metrics.jsonl to the reader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::bench {

struct LiveBench {
  std::vector<std::string> cases = {"load", "train"};
  std::int64_t steps = 1'000'000;  // of the long run
  int loads = 5;
  int ranks = 8;
  int windows = 16;                   // of both kinds together
  double seconds = 10;                // of each
  std::vector<std::string> settings;  // of the job, on top
  std::filesystem::path json;         // empty: none
  std::filesystem::path command;      // lockstep
};

// Runs, prints, writes the JSON. False where a bar is missed: 2 s to load, 2 s behind, 1 % slower.
// Throws Error(kAborted) when interrupted.
bool run_live(const LiveBench& bench);

}  // namespace lockstep::bench
