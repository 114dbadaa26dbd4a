// The memory by which kernels of several ranks meet, and what they report to the host.
//
// Every rank has a Control in device memory that all ranks map. Blocks of threads meet blocks of
// the same number at other ranks: each writes a *signal* into the Control of every other rank and
// waits for theirs. A signal is the number of the meeting and a *tag*, a hash of the call, so ranks
// that make different calls find out before data moves. Numbers are counted in device memory, so
// calls can be captured and launched again.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

inline constexpr int kMostRanks = 16;
inline constexpr int kMostBlocks = 64;
inline constexpr int kMostAllocations = 256;
// What a block of threads moves, where there are enough blocks.
inline constexpr std::size_t kBytesOfBlock = std::size_t{8} << 10;
// All-reduces of up to this size go through Peers::small.
inline constexpr std::size_t kSmallBytes = std::size_t{256} << 10;

// A Fingerprint (comm/fingerprint.h) as kernels carry it.
struct Operation {
  std::uint64_t words[4];
};

// Where data begins: in which allocation of symmetric memory, and at which byte of it.
struct Place {
  std::uint32_t allocation = 0;
  std::uint64_t offset = 0;
};

// What a block shows to the blocks of the same number at other ranks.
struct Card {
  Place in = {};
  Place out = {};
  std::uint64_t first_for[kMostRanks] = {};  // where data for each rank begins, in bytes after `in`
};

struct Control {
  std::uint64_t signals[kMostBlocks][kMostRanks];  // written by others
  std::uint32_t meetings[kMostBlocks];             // that each block has had
  Card cards[kMostBlocks];
  Operation operations[2];  // of the last two meetings of block 0, for errors
  std::uint32_t claimed;    // one thread of this rank reports
  std::uint32_t aborted;    // all kernels of this rank end
};

enum class Outcome : std::uint32_t {
  kFine,
  kMismatch,  // `other` made another call
  kOverdue,   // `missing` did not come in time
  kStopped,   // another rank, or the host, ended this
};

// In pinned memory: written by one kernel at most, except for `abort`, which the host sets.
struct Report {
  volatile std::uint32_t abort;
  volatile std::uint32_t outcome;
  std::uint32_t missing;  // a bit for each rank
  std::uint32_t other;
  Operation mine;
  Operation theirs;
};

// What every kernel of a communicator gets.
struct Peers {
  Control* controls[kMostRanks];  // of all ranks, as this one maps them
  std::byte* small[kMostRanks];   // two slots of each block
  std::byte* const* bases;        // [allocation][rank], on the device
  Report* report;
  std::uint64_t timeout;     // in nanoseconds
  std::uint64_t slot_bytes;  // what a block has of a small all-reduce, at most
  int rank;
  int size;
};

struct Header {
  Operation operation;  // the same on all ranks
  std::uint32_t tag;
  unsigned blocks;
};

}  // namespace lockstep::cuda
