// `lockstep bench train`: steps of training on synthetic tokens, ours and PyTorch's by turns.
//
// Every implementation is a process that makes its model, takes warm-up steps (the first compiles),
// and then one step in each of its turns, so that disturbances of the machine affect all equally.
// Between turns it sleeps.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/ops/timed_ops.h"
#include "lockstep/train/options/options.h"

namespace lockstep::bench {

struct TrainBench {
  train::TrainOptions options;
  std::vector<std::string> settings;  // options again, as key=value for the worker
  int steps = 5;                      // timed ones of each implementation
  bool profile = false;               // one more step of ours, by its operations
  bool peers = false;
  std::vector<std::string> modes;  // of PyTorch; empty: all that its device has
  std::string python;
  std::filesystem::path json;          // empty: none
  std::filesystem::path command;       // the `lockstep` program
  std::filesystem::path peers_folder;  // of the peers' scripts
};

// A step by its operations.
struct StepProfile {
  double seconds = 0;
  std::vector<OpTime> operations;  // longest first
};

// One implementation's result.
struct TrainResult {
  std::string implementation;  // "lockstep", "pytorch-eager", "pytorch-compile"
  std::string version;
  std::vector<double> seconds;  // of each timed step, sorted
  double first_loss = 0;
  double last_loss = 0;
  std::size_t peak_bytes = 0;
  std::size_t planned_bytes = 0;  // 0: it does not plan
  double gemm_flops = 0;          // per second; the median. 0: not measured
  StepProfile profile;            // without operations where it was not asked for
  std::string problem;

  double median_seconds() const;
};

// What all of them did.
struct TrainWork {
  std::string model;
  std::string precision;
  std::string recompute;
  std::int64_t batch = 0;  // sequences of a step
  std::int64_t sequence = 0;
  int threads = 0;
  double flops = 0;  // of a step, matrix products, without what is recomputed

  std::int64_t tokens() const { return batch * sequence; }
};

std::string train_table(const TrainWork& work, const std::vector<TrainResult>& results);
// Of what lasts longest, each with its share and its rate.
std::string profile_table(const StepProfile& profile);
std::string train_json(const TrainWork& work, const std::vector<TrainResult>& results);

// Runs, prints, writes the JSON. False where ours failed. Throws Error(kAborted) when interrupted,
// after printing what has been measured by then.
bool run_train(const TrainBench& bench);

}  // namespace lockstep::bench
