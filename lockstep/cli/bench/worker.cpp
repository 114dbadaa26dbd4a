#include <memory>
#include <string>

#include "lockstep/bench/collectives/communicator_subject.h"
#include "lockstep/cli/bench/bench.h"

namespace lockstep::cli {

void add_bench_worker(CLI::App& bench, int& exit_code) {
  const auto transport = std::make_shared<std::string>("auto");
  CLI::App* command = bench.add_subcommand("worker", "One rank of a bench; started by the bench");
  command->group("");
  command->add_option("--transport", *transport, "auto or tcp");
  command->callback([transport, &exit_code] {
    const auto world = bench::connect_bench_world(*transport);
    bench::CommunicatorSubject subject(*world);
    exit_code = bench::serve(subject);
  });
}

}  // namespace lockstep::cli
