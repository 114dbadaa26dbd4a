#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/unexpected.h"
#include "lockstep/cli/usage_error.h"
#include "lockstep/launch/blame.h"

namespace {

using lockstep::cli::kNonFiniteError;
using lockstep::cli::kUsageError;

int exit_code_of(lockstep::ErrorCode code) {
  switch (code) {
    case lockstep::ErrorCode::kInvalidArgument:
    case lockstep::ErrorCode::kUnsupported:  // by settings, mostly: it would come again
      return kUsageError;
    case lockstep::ErrorCode::kNonFinite:
      return kNonFiniteError;
    default:
      return 1;
  }
}

void tell(const std::string& error) {
  fmt::print(stderr, "{}{}\n", lockstep::cli::kErrorPrefix, error);
}

// Jobs write their results into files, and continue without a log.
bool is_result(const CLI::App& app) {
  for (const char* job : {"train", "sweep", "launch"}) {
    if (app.got_subcommand(job)) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::cli::end_in_sentences();
  CLI::App app{"lockstep: trains transformer language models on many workers at once"};
  app.require_subcommand(1);
  app.set_version_flag("--version", LOCKSTEP_VERSION);
  int exit_code = 0;
  lockstep::cli::add_explain(app, exit_code);
  lockstep::cli::add_launch(app, exit_code);
  lockstep::cli::add_bench(app, exit_code);
  lockstep::cli::add_plan(app, exit_code);
  lockstep::cli::add_train(app, exit_code);
  lockstep::cli::add_resize(app, exit_code);
  lockstep::cli::add_watch(app, exit_code);
  lockstep::cli::add_import(app, exit_code);
  lockstep::cli::add_export(app, exit_code);
  lockstep::cli::add_inspect(app, exit_code);
  lockstep::cli::add_tokenize(app, exit_code);
  lockstep::cli::add_generate(app, exit_code);
  lockstep::cli::add_eval(app, exit_code);
  lockstep::cli::add_runs(app, exit_code);
  lockstep::cli::add_sweep(app, exit_code);
  lockstep::cli::add_info(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    tell(lockstep::cli::describe_usage_error(app, error));
    return kUsageError;
  } catch (const lockstep::Error& error) {
    tell(lockstep::printable(error.what()));
    const bool by_others = error.code() == lockstep::ErrorCode::kPeerLost ||
                           error.code() == lockstep::ErrorCode::kTimeout;
    if (by_others && !error.ranks().empty()) {
      fmt::print(stderr, "{}\n", lockstep::blame_line(error.ranks()));
    }
    return exit_code_of(error.code());
  } catch (const std::exception& error) {
    tell(lockstep::cli::describe_unexpected(error));
    return 1;
  }
  // A reader that has seen enough is no error.
  if (std::fflush(stdout) != 0 && errno != EPIPE && is_result(app)) {
    tell(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
    return 1;
  }
  return exit_code;
}
