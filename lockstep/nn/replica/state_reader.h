// Somebody who reads a replica's states while steps go on: a checkpoint on its way to the disk.
#pragma once

#include <cstddef>

namespace lockstep::nn {

class StateReader {
 public:
  virtual ~StateReader() = default;
  // Returns when the states of a block that a checkpoint holds (the master copy, and what an
  // optimizer keeps) may change. Called by whoever updates them.
  virtual void before_change(std::size_t block) = 0;
};

}  // namespace lockstep::nn
