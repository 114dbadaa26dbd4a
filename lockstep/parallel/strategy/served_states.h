// The states that a parameter server has in a worker's process, as its other threads read them: to
// mirror them (train/run/mirror.h).
//
// Servers update in *rounds*, in which every worker has asked for an update. With bsp a server does
// a round when all workers have asked for it, so a worker that has not asked yet keeps the states
// of all servers as they are. With asp and ssp slices change at any time: only the server can copy
// them, between two updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/nn/parameters/flat_parameters.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::parallel {

// A slice of the flat buffer of parameters, and the server that has it.
struct ServedSlice {
  nn::FlatRange range;
  int server = 0;
};

class ServedStates {
 public:
  virtual ~ServedStates() = default;

  // bsp: the rounds that this worker has asked for. For the worker's thread.
  virtual std::uint64_t asked() const = 0;
  // bsp: whether the server of this process has done exactly that many rounds. / Waits until it
  // has, and throws what has ended the server before. Where there is no server both are so at once.
  virtual bool has_done(std::uint64_t rounds) = 0;
  virtual void await(std::uint64_t rounds) = 0;
  // asp and ssp: waits until workers have asked for that many rounds on average, and packs states()
  // one after the other. Throws as await().
  virtual void copy(std::uint64_t rounds, std::span<std::byte> into) = 0;
  // Packs them as they are, also after the server has ended. False: it has never had all of them.
  virtual bool copy_now(std::span<std::byte> into) = 0;
  // Ends the await() or copy() of another thread with Error(kAborted), and those to come.
  virtual void stop_waiting() = 0;

  // Of each slice of the server, in their order: the master copy and the optimizer's states, f32.
  // With bsp to be read between rounds. They outlive the server. Empty where there is none.
  virtual const std::vector<Tensor>& states() const = 0;
};

}  // namespace lockstep::parallel
