// Reads a replica's states during steps: a checkpoint that is being written.
#pragma once

#include <cstddef>

namespace lockstep::nn {

class StateReader {
 public:
  virtual ~StateReader() = default;
  // Returns when the states of a block (the master copy and the optimizer states) may change.
  // Called before an update.
  virtual void before_change(std::size_t block) = 0;
};

}  // namespace lockstep::nn
