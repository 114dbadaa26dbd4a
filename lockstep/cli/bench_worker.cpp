#include "lockstep/cli/bench.h"

namespace lockstep::cli {

void add_bench_worker(CLI::App& bench, int& exit_code) {
  (void)bench;
  (void)exit_code;
}

}  // namespace lockstep::cli
