// A rank for rendezvous_proc_test.cpp.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/net/host_port.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/rendezvous/rendezvous.h"
#include "lockstep/launch/world.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// A rank that exchanges until the file `go` appears in $DIR, then prints what it last got.
void exchange_until_told() {
  const World world = find_world();
  const Token token = find_token();
  const std::filesystem::path folder = std::getenv("DIR");
  std::unique_ptr<RendezvousServer> server;
  if (world.rank == 0 && !world.rendezvous_is_hosted) {
    server = std::make_unique<RendezvousServer>(world.rendezvous, token, world.size);
  }
  std::vector<std::string> blobs;
  for (int round = 0; blobs.empty() || blobs[0] != "stop"; ++round) {
    const bool stop = world.rank == 0 && std::filesystem::exists(folder / "go");
    blobs = exchange(world.rendezvous, token, fmt::format("round {}", round), world.rank,
                     world.size, stop ? "stop" : std::to_string(world.rank), deadline_in(30s));
    if (round == 0 && world.rank == 0) {
      std::ofstream(folder / "draft") << format_host_port(world.rendezvous);
      std::filesystem::rename(folder / "draft", folder / "address");
    }
  }
  fmt::print("{} of {} met {}\n", world.rank, world.size, fmt::join(blobs, " "));
}

}  // namespace
}  // namespace lockstep

int main() {
  try {
    lockstep::exchange_until_told();
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
