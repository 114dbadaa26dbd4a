#include "lockstep/cli/command.h"

namespace lockstep::cli {

void add_launch(CLI::App&, int&) {}

}  // namespace lockstep::cli
