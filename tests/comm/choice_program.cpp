// One rank that all-reduces a megabyte and says which algorithm was chosen, and why; started by
// hosts_net_test.cpp on several hosts.
#include <fmt/core.h>

#include "lockstep/launch/make_world.h"
#include "tests/comm/oracle.h"

int main() {
  using namespace lockstep;
  const auto world = make_world();
  constexpr std::size_t kCount = 1 << 18;
  std::vector<float> data = testing::input_of<float>(world->rank(), kCount);
  const Call call = all_reduce(data);
  world->run(call);
  for (std::size_t i = 0; i < kCount; ++i) {
    if (data[i] != testing::expected_reduced<float>(world->size(), i, ReduceOp::kSum)) {
      fmt::print("wrong at {}\n", i);
      return 1;
    }
  }
  world->barrier();
  if (world->rank() == 0) {
    const Choice choice = world->choice(call);
    fmt::print("chosen {} because {}\ncorrect\n", choice.algorithm, choice.why);
  }
  return 0;
}
