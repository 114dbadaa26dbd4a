// lockstep bench recipe: a whole training, from the text file to the last loss, beside PyTorch.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "lockstep/base/cpu_set.h"
#include "lockstep/base/error.h"
#include "lockstep/bench/recipe.h"
#include "lockstep/cli/bench.h"

namespace lockstep::cli {
namespace {

constexpr const char* kRecipeExamples =
    R"(Trains nanoGPT's small GPT for CPUs: 4 layers, 4 heads, 128 wide, 64 letters, 12 sequences a step,
90 % of the text to learn from and 10 % to validate on. The time is that of the whole process.

Examples:
  lockstep bench recipe --text tinyshakespeare.txt
  lockstep bench recipe --text tinyshakespeare.txt --runs 3 --peers --json recipe.json

PyTorch is looked for in --python, LOCKSTEP_PYTHON, build/peers (./dev peers) and python3.)";

}  // namespace

void add_bench_recipe(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<bench::RecipeBench>();
  CLI::App* command =
      bench.add_subcommand("recipe", "Time a whole training of a small GPT, beside PyTorch");
  command->footer(kRecipeExamples);
  command->add_option("--text", flags->text, "a text file")->required()->type_name("FILE");
  command->add_option("--steps", flags->steps, "of each training")
      ->check(CLI::Range(2, 1000000))
      ->capture_default_str();
  command->add_option("--runs", flags->runs, "of each implementation, by turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "of each implementation (all allowed cores)")
      ->check(CLI::Range(1, 4096));
  command->add_flag("--peers", flags->peers, "also run PyTorch, eager and compiled");
  command->add_option("--python", flags->python, "a Python that has PyTorch")->type_name("PATH");
  command
      ->add_option("--peers-folder", flags->peers_folder,
                   "where the peers' scripts are (bench/peers beside this program)")
      ->type_name("FOLDER");
  command->add_option("--json", flags->json, "write the results as an array of objects")
      ->type_name("FILE");
  command->callback([flags, &exit_code] {
    flags->command = std::filesystem::read_symlink("/proc/self/exe");
    if (flags->peers_folder.empty()) {
      flags->peers_folder = flags->command.parent_path() / "bench" / "peers";
    }
    if (flags->threads == 0) flags->threads = CpuSet::of_this_thread().count();
    if (!std::filesystem::is_regular_file(flags->text)) {
      fail(ErrorCode::kInvalidArgument, "--text: there is no file {}", flags->text.string());
    }
    try {
      exit_code = bench::run_recipe(*flags) ? 0 : 1;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kAborted) throw;
      fmt::print(stderr, "lockstep: {}\n", error.what());
      exit_code = kInterrupted;
    }
  });
}

}  // namespace lockstep::cli
