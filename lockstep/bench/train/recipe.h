// `lockstep bench recipe`: a whole training from a text file to a validated model, ours and
// PyTorch's, each as a user would start it: nanoGPT's small GPT on letters, which a CPU can do.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::bench {

struct RecipeBench {
  std::filesystem::path text;
  int steps = 2000;
  int runs = 1;  // of each, by turns
  int threads = 0;
  bool peers = false;
  std::string python;
  std::filesystem::path json;  // empty: none
  std::filesystem::path command;
  std::filesystem::path peers_folder;
};

struct RecipeResult {
  std::string implementation;   // "lockstep", "pytorch-eager", "pytorch-compile"
  std::vector<double> seconds;  // from the start of the process to its end
  double validation_loss = 0;
  std::string problem;

  double median_seconds() const;
};

std::string recipe_table(const RecipeBench& bench, const std::vector<RecipeResult>& results);
std::string recipe_json(const RecipeBench& bench, const std::vector<RecipeResult>& results);

// Runs, prints, writes the JSON. False where ours failed. Throws Error(kAborted) when interrupted.
bool run_recipe(const RecipeBench& bench);

}  // namespace lockstep::bench
