// All-gathers of values and texts.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::parallel {

// Gathers the same number of elements from each worker, in the order of workers.
template <class T>
std::vector<T> gathered(Communicator& world, std::span<const T> mine) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(mine, all);
  return all;
}

// Gathers a text of any length from each worker.
std::vector<std::string> gathered_texts(Communicator& world, std::string_view mine);
// The same at `root` alone; the others get none.
std::vector<std::string> gathered_texts_at(int root, Communicator& world, std::string_view mine);

}  // namespace lockstep::parallel
