#include "lockstep/cli/command.h"

namespace lockstep::cli {

void add_bench(CLI::App&, int&) {}

}  // namespace lockstep::cli
