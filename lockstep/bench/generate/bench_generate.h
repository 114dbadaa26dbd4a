// `lockstep bench generate`: texts of random tokens continued by a model of random weights, a batch
// at a time, ours and PyTorch's by turns, each in its own process, as in bench/train.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/train/options/options.h"

namespace lockstep::bench {

// What all of them do.
struct GenerateWork {
  std::string model;
  std::string precision;
  int threads = 0;
  bool on_gpu = false;
  std::int64_t batch = 1;
  std::int64_t prompt = 16;
  std::int64_t tokens = 128;        // that are added to each
  std::size_t parameter_bytes = 0;  // that each of them has to read
};

struct GenerateBench {
  train::TrainOptions options;        // model, precision and threads count
  std::vector<std::string> settings;  // options again, as key=value for the worker
  std::int64_t batch = 1;             // texts that are written together
  std::int64_t prompt = 16;
  std::int64_t tokens = 128;
  int rounds = 5;  // timed texts of each implementation
  bool peers = false;
  std::string python;
  std::filesystem::path json;          // empty: none
  std::filesystem::path command;       // the `lockstep` program
  std::filesystem::path peers_folder;  // of the peers' scripts
};

// One implementation's result.
struct GenerateResult {
  std::string implementation;  // "lockstep", "pytorch-lean", "pytorch-compile", "transformers"
  std::string version;
  std::vector<double> prompt_seconds;  // of each text, sorted
  std::vector<double> seconds;         // for the new tokens of each text, sorted
  std::size_t peak_bytes = 0;
  std::size_t planned_bytes = 0;  // 0: it does not plan
  std::string problem;

  double median_prompt() const;
  double median_seconds() const;
};

std::string generate_table(const GenerateWork& work, const std::vector<GenerateResult>& results);
std::string generate_json(const GenerateWork& work, const std::vector<GenerateResult>& results);

// Runs, prints, writes the JSON. False where ours failed. Throws Error(kAborted) when interrupted.
bool run_generate(const GenerateBench& bench);

// Our side, in a process of its own: "generate" continues a text, "reset", "usage" as in
// bench/train/worker.h.
void serve_generation(const train::TrainOptions& options, std::int64_t batch, std::int64_t prompt,
                      std::int64_t tokens);

}  // namespace lockstep::bench
