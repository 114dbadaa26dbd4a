// lockstep resize: another number of ranks for an elastic job that runs.
#include <fmt/core.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"
#include "lockstep/launch/resize_request.h"

namespace lockstep::cli {
namespace {

constexpr const char* kResizeFooter =
    R"(The job was started by lockstep train --ranks MIN:MAX, or --nodes MIN:MAX, and its node 0 is this
machine. It stops after a step and continues with N ranks, from MIN to MAX: the same sequences a
step, the same order. Ranks that are added start first, beside the job; those that are not needed
end. N is what the job returns to from then on when ranks have failed.

Example:
  lockstep resize runs/first 3)";

struct ResizeFlags {
  std::string run;
  int ranks = 0;
};

}  // namespace

void add_resize(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("resize", "Change the number of ranks of a job that runs");
  const auto flags = std::make_shared<ResizeFlags>();
  command->add_option("run", flags->run, "The folder of the run")->required();
  command->add_option("ranks", flags->ranks, "How many ranks")->required()->type_name("N");
  command->footer(kResizeFooter);
  command->callback([flags, &exit_code] {
    if (!std::filesystem::is_directory(flags->run)) {
      fail(ErrorCode::kInvalidArgument, "{} is not the folder of a run", flags->run);
    }
    constexpr std::chrono::seconds kTimeout{5};
    fmt::print("{}\n", request_ranks(flags->run, flags->ranks, kTimeout));
    exit_code = 0;
  });
}

}  // namespace lockstep::cli
