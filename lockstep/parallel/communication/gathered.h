// What every worker has, at every worker.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::parallel {

// As many elements of each, one worker's after the other's.
template <class T>
std::vector<T> gathered(Communicator& world, std::span<const T> mine) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(mine, all);
  return all;
}

// A text of any length of each.
std::vector<std::string> gathered_texts(Communicator& world, std::string_view mine);
// The same at `root` alone; the others get none.
std::vector<std::string> gathered_texts_at(int root, Communicator& world, std::string_view mine);

}  // namespace lockstep::parallel
