#include "lockstep/cli/command.h"

namespace lockstep::cli {

void add_explain(CLI::App&, int&) {}

}  // namespace lockstep::cli
