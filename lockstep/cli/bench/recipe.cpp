// lockstep bench recipe: a whole training, from the text file to the last loss, beside PyTorch.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/bench/train/recipe.h"
#include "lockstep/cli/bench/bench.h"
#include "lockstep/cli/bench/peers.h"

namespace lockstep::cli {
namespace {

constexpr const char* kRecipeExamples =
    R"(Trains nanoGPT's small GPT for CPUs: 4 layers, 4 heads, 128 wide, 64 letters, 12 sequences a step,
90 % of the text to learn from and 10 % to validate on. The time is that of the whole process.

Examples:
  lockstep bench recipe --text tinyshakespeare.txt
  lockstep bench recipe --text tinyshakespeare.txt --runs 3 --peers --json recipe.json

PyTorch is looked for in --python, LOCKSTEP_PYTHON, build/peers (./dev peers) and python3.)";

struct RecipeFlags {
  bench::RecipeBench bench;
  PeerFlags peers;
};

}  // namespace

void add_bench_recipe(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<RecipeFlags>();
  CLI::App* command =
      bench.add_subcommand("recipe", "Time a whole training of a small GPT, beside PyTorch");
  command->footer(kRecipeExamples);
  command->add_option("--text", flags->bench.text, "a text file")->required()->type_name("FILE");
  command->add_option("--steps", flags->bench.steps, "of each training")
      ->check(CLI::Range(2, 1000000))
      ->capture_default_str();
  command->add_option("--runs", flags->bench.runs, "of each implementation, by turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--threads", flags->bench.threads, "of each implementation (all allowed cores)")
      ->check(CLI::Range(1, 4096));
  add_peer_options(*command, flags->peers, "PyTorch, eager and compiled", "PyTorch");
  command->callback([flags, &exit_code] {
    set_peers(flags->peers, flags->bench);
    if (flags->bench.threads == 0) flags->bench.threads = CpuSet::of_this_thread().count();
    if (!std::filesystem::is_regular_file(flags->bench.text)) {
      fail(ErrorCode::kInvalidArgument, "--text: the file {} does not exist",
           flags->bench.text.string());
    }
    exit_code = run_bench([&] { return bench::run_recipe(flags->bench); });
  });
}

}  // namespace lockstep::cli
