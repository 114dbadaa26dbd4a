// The memory of the chunks of a schedule for one call of one rank.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/comm/call.h"
#include "lockstep/comm/schedule/schedule.h"

namespace lockstep::transport {

class Layout {
 public:
  // `chunks` is Algorithm::chunks of the shape; `input` replaces call.in if the caller has copied
  // it.
  Layout(const Call& call, const std::byte* input, int rank, int ranks, int chunks,
         const std::vector<int>& scratch);

  std::size_t bytes(const schedule::Region& region) const;
  // The caller never writes through an input region.
  std::byte* address(const schedule::Region& region) const;

  std::size_t scratch_bytes() const { return scratch_offsets_.back(); }
  void set_scratch(std::byte* scratch) { scratch_ = scratch; }

 private:
  std::size_t chunk_bytes(int chunk) const;
  std::size_t offset(schedule::Space space, int chunk) const;

  // Chunks that are contiguous in memory.
  struct Run {
    int first = 0;                     // chunk number of the first
    int step = 1;                      // between neighbours' chunk numbers
    std::vector<std::size_t> offsets;  // bytes; one more than there are chunks
    bool contains(int chunk) const;
    std::size_t index(int chunk) const { return static_cast<std::size_t>((chunk - first) / step); }
  };

  const std::byte* input_;
  std::byte* output_;
  std::byte* scratch_ = nullptr;
  Run whole_;  // every chunk there is (all_to_all: none)
  Run in_run_;
  Run out_run_;
  std::vector<std::size_t> scratch_offsets_;
};

}  // namespace lockstep::transport
