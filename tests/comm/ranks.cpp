#include "tests/comm/ranks.h"

#include <cstdlib>
#include <string_view>

#include "lockstep/comm/native/threads.h"
#include "lockstep/launch/make_world.h"

namespace lockstep::testing {

bool ranks_are_processes() {
  const char* world = std::getenv("LOCKSTEP_TEST_WORLD");
  return world != nullptr && std::string_view(world) == "processes";
}

namespace {

// Sanitizers multiply the time of every rank, and find with five what they find with nine.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMostThreads = 5;
#else
constexpr int kMostThreads = 9;
#endif

Communicator& process_world() {
  static const std::unique_ptr<Communicator> world = make_world();
  return *world;
}

}  // namespace

int most_ranks() { return ranks_are_processes() ? process_world().size() : kMostThreads; }

void on_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  if (!ranks_are_processes()) return run_threads(ranks, body);
  Communicator& world = process_world();
  const auto group = world.split(world.rank() < ranks ? 0 : -1, world.rank());
  if (group) body(*group);
  world.barrier();
}

void on_every_size(const std::function<void(Communicator&)>& body) {
  for (int ranks = 1; ranks <= most_ranks(); ++ranks) on_ranks(ranks, body);
}

}  // namespace lockstep::testing
