// Every rank gives a vector of its own, and every rank gets their sum.
//
//   lockstep launch -n 4 -- build/release/examples/all_reduce
#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/launch/make_world.h"

int main() {
  try {
    const auto world = lockstep::make_world();
    constexpr std::size_t kCount = 1 << 20;

    // Memory that the other ranks of this node can see: summing it needs no copies. A
    // std::vector works as well.
    const lockstep::SymmetricBuffer memory = world->allocate(kCount * sizeof(float));
    const std::span<float> values = memory.as<float>();
    std::ranges::fill(values, static_cast<float>(world->rank() + 1));

    world->all_reduce(values);

    const auto expected = static_cast<float>(world->size() * (world->size() + 1) / 2);
    const bool correct = std::ranges::count(values, expected) == std::ranges::ssize(values);
    fmt::print("rank {} of {}: every element is {}, {}\n", world->rank(), world->size(), values[0],
               correct ? "as it should be" : "which is wrong");
    return correct ? 0 : 1;
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "all_reduce: {}\n", error.what());
    return 1;
  }
}
