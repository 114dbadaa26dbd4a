// The kernels of messages between two ranks (comm/cuda/mailbox.h), each of one warp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "lockstep/comm/cuda/control.h"

namespace lockstep::cuda {

// Waits until `signal` has `number`, or with a tag until it is exactly that.
struct Await {
  const std::uint64_t* signal;
  const Operation* theirs;  // nullptr: numbers are compared alone
  Operation mine;
  std::uint32_t number;
  std::uint32_t tag;
  int other;
};
void launch_await(const Peers& peers, const Await& await, cudaStream_t stream);

// Makes all that the stream has written before visible to the rank that reads the signal.
struct Announce {
  std::uint64_t* signal;
  Operation* operation;  // nullptr: none is recorded
  Operation mine;
  std::uint64_t value;
};
void launch_announce(const Announce& announce, cudaStream_t stream);

// As load_kernels().
void load_message_kernels();

}  // namespace lockstep::cuda
