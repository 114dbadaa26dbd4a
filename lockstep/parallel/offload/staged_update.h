// The update of a replica on the host, block by block, of flat buffers in memory.
//
// Gradients and parameters that are on the device cross through a ring of staging chunks. Copies to
// the host and copies back have a stream each, so both directions of the bus work at once, and
// chunks of the next block come while those of this one are computed:
//
//   down   | gradients 0, 1, 2, 3 | gradients 4  | gradients 5  | ...
//   host   |                      | update 0     | update 1     | ...
//   up     |                      |              | parameters 0 | ...
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::parallel {

class StagedUpdate {
 public:
  // Whether the host updates, and all it reads and writes is in memory.
  static bool serves(const nn::MemoryPlan& plan);

  // `ops` compute on the host. Both must outlive it.
  StagedUpdate(nn::Replica& replica, Ops& ops);

  // Begins an update. Gradients are final and complete, and stay so until all blocks are updated.
  void begin(const UpdateRequest& request, double gradient_norm);
  // Updates the next block: block 0 first. On return its master copy and optimizer states are
  // those of the next step, and its gradients are not read any more; so are its parameters when the
  // event has come. One thread at a time.
  Event update(std::size_t block);
  // Waits until the parameters of all updated blocks are where they belong.
  void synchronize();
  // Waits until no copy is under way, also after an error.
  void settle() noexcept;

 private:
  static constexpr std::size_t kSlots = 4;

  struct Run {
    nn::FlatRange range;  // in this worker's part of the block
    bool decays = true;
  };
  struct Chunk {
    std::size_t block = 0;
    nn::FlatRange range;
    std::vector<Run> runs;
  };

  Tensor slot(const Tensor& staged, std::size_t chunk) const;
  nn::States states_of(const Chunk& chunk) const;
  void fetch(std::size_t chunk);
  void update_chunk(std::size_t chunk);

  nn::Replica& replica_;
  Ops& ops_;
  const bool rounds_;
  Tensor staged_gradients_;   // absent: they are on the host
  Tensor staged_parameters_;  // likewise
  std::vector<Chunk> chunks_;
  std::optional<UpdateRequest> request_;
  double gradient_norm_ = 0;
  std::size_t fetched_ = 0;  // chunks that were queued to come
  std::size_t next_ = 0;     // chunk to update
  // Of the chunk that a slot has.
  std::array<Event, kSlots> came_;
  std::array<Event, kSlots> left_;
  std::optional<Stream> down_;
  std::optional<Stream> up_;
};

}  // namespace lockstep::parallel
