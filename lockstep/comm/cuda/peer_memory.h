// Symmetric device memory: every rank allocates as much, and maps that of all others.
//
// Ranks of one process use each other's addresses; ranks of several exchange CUDA's IPC handles.
// Others may still have memory mapped that its rank no longer needs. So it is freed at the next
// allocate(), or at the end, when all ranks have come there.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/cuda/control.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::cuda {

class PeerMemory {
 public:
  // Of the ranks of `host`, which must outlive it. Throws Error(kUnsupported) where they are of
  // several nodes, too many, or on GPUs that cannot read each other's memory.
  PeerMemory(Communicator& host, int device);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  struct Allocation {
    std::uint32_t index = 0;
    std::array<std::byte*, kMostRanks> bases{};  // of all ranks, as this one maps them
  };
  // Called by all ranks, with as many bytes. Not initialized.
  Allocation allocate(std::size_t bytes);
  // At any time.
  void release(std::uint32_t index);

  // Where data begins; nothing if it does not lie in symmetric memory.
  std::optional<Place> find(const std::byte* data, std::size_t bytes) const;

  // The most ranks that use the same GPU, alike on all ranks, and whether those of this rank's GPU
  // are of several processes.
  int sharers() const { return sharers_; }
  bool shares_with_processes() const { return shares_with_processes_; }
  // Whether other ranks are threads of this process.
  bool shares_process() const { return ranks_here_ > 1; }

 private:
  struct Held {
    Buffer buffer;
    std::vector<void*> mapped = {};  // of other processes
    bool is_released = false;
  };

  void sweep();

  Communicator& host_;
  const int device_;
  int sharers_ = 1;
  bool shares_with_processes_ = false;
  int ranks_here_ = 0;
  mutable std::mutex mutex_;  // guards all below
  std::map<std::uint32_t, Held> held_;
};

}  // namespace lockstep::cuda
