// The shared memory of the ranks of one communicator on one node.
//
// Layout, for n local ranks (each part on a line of its own, so that no two writers share one):
//
//   Header
//   Area[n]     one per rank, written by its owner:
//                 doorbell      what others ring when the owner sleeps
//                 phase         how many phases of its operations the owner has finished
//                 posts[2]      its last two operations: sequence, fingerprint, small payload
//                 signals[]     how often each local rank has signalled the owner (they write)
//                 records[], messages[]   its last operations, readable after its death
//   Ring[2][n][n]  byte streams from rank to rank: of collectives, and of sends and receives
//   staging     per rank, for data that is not in symmetric memory:
//                 two one-shot slots, then three windows
//
// Nothing here owns memory: a Segment is a view of bytes that are zero at first.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "lockstep/comm/fingerprint.h"

namespace lockstep::shared {

inline constexpr std::size_t kLine = 128;  // two lines: prefetchers fetch them in pairs
inline constexpr int kMaxLocalRanks = 256;
// The largest payload inside a post: up to this size it is faster than a second synchronization.
// Measured with 2 ranks: on a Xeon, where synchronization is expensive, 2 and 4 KiB take half to
// three quarters of the time; on a Neoverse N1 they take up to twice as long.
#if defined(__x86_64__)
inline constexpr std::size_t kInlineBytes = 4096;
#else
inline constexpr std::size_t kInlineBytes = 1024;
#endif
inline constexpr std::size_t kOneShotBytes = std::size_t{64} * 1024;  // payload of a one-shot slot
inline constexpr int kOneShotSlots = 2;
inline constexpr int kWindows = 3;
inline constexpr std::size_t kRingBytes = std::size_t{256} * 1024;
inline constexpr int kRecords = 64;
inline constexpr int kMessageRecords = 64;

// Wakes the owner: `sleepers` of its threads wait for `rung` to change.
struct alignas(kLine) Doorbell {
  std::atomic<std::uint32_t> sleepers;
  std::atomic<std::uint32_t> rung;
};

// A place in symmetric memory: an allocation and an offset. Allocation 0: private memory.
struct Place {
  std::uint32_t allocation = 0;
  std::uint64_t offset = 0;
};

// What a rank publishes when it starts an operation. Sequence, hash and the first bytes of the
// payload share a cache line, so a small operation moves one line between ranks.
struct alignas(kLine) Post {
  std::atomic<std::uint64_t> sequence;
  std::uint64_t hash;
  union {
    std::byte payload[kInlineBytes];
    struct {
      Place in;
      Place out;
      bool readable;  // other ranks can read this rank's input in place, or it has none
      bool writable;  // other ranks can write its output in place, or need not
      bool staged;    // this rank's input is in its one-shot slot
    } offer;
  };
  alignas(kLine) Fingerprint fingerprint;  // read only to explain a mismatch
};

// A Fingerprint that one thread writes while others may read it. What they read may then be of two
// operations; the only effect is a wrong line in a report.
class RecordedFingerprint {
 public:
  void store(const Fingerprint& fingerprint) {
    const auto words = std::bit_cast<Words>(fingerprint);
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_relaxed);
  }
  Fingerprint load() const {
    Words words;
    for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
    return std::bit_cast<Fingerprint>(words);
  }

 private:
  static constexpr std::size_t kWords = sizeof(Fingerprint) / sizeof(std::uint64_t);
  using Words = std::array<std::uint64_t, kWords>;

  std::atomic<std::uint64_t> words_[kWords];
};

// One operation of the flight recorder. `ended` is 0 while it runs. All of it is atomic because a
// rank that has failed reads the records of others, which may begin or end an operation meanwhile.
struct Record {
  std::atomic<std::uint64_t> started;  // ticks
  std::atomic<std::uint64_t> ended;
  RecordedFingerprint fingerprint;
};

enum class MessageKind : std::uint8_t { kSend, kReceive, kSignal, kWaitSignal };

// One message or signal of the flight recorder. Several threads write such records, hence the
// atomics. If a message lasts so long that its record is reused, the two may mix; the only effect
// is a wrong line in a report.
struct MessageRecord {
  std::atomic<std::uint64_t> serial;  // the number of the message, from 1
  std::atomic<std::uint64_t> started;
  std::atomic<std::uint64_t> ended;
  std::atomic<std::uint64_t> number;  // among those of its kind with that peer
  std::atomic<std::uint64_t> count;
  std::atomic<std::int32_t> peer;
  std::atomic<MessageKind> kind;
  std::atomic<DType> dtype;
};

// The state of an area's owner: it takes part, has closed its communicator, or has closed it after
// an error, which is being sent to all ranks.
enum class Presence : std::uint32_t { kHere, kLeft, kLeftBroken };

struct alignas(4096) Area {
  Doorbell doorbell;
  alignas(kLine) std::atomic<std::uint64_t> phase;
  alignas(kLine) std::atomic<Presence> presence;
  Post posts[2];
  alignas(kLine) std::atomic<std::uint64_t> signals[kMaxLocalRanks];
  alignas(kLine) Record records[kRecords];
  alignas(kLine) MessageRecord messages[kMessageRecords];
};

// A stream of bytes from one writer to one reader: bytes [read, written) are in flight.
struct alignas(4096) Ring {
  alignas(kLine) std::atomic<std::uint64_t> written;
  alignas(kLine) std::atomic<std::uint64_t> read;
  alignas(kLine) std::byte bytes[kRingBytes];
};

enum class Stream : int { kCollective = 0, kPointToPoint = 1 };

class Segment {
 public:
  Segment(std::byte* base, int ranks, std::size_t window_bytes)
      : base_(base), ranks_(ranks), window_(window_bytes) {}

  static std::size_t bytes(int ranks, std::size_t window_bytes);

  int ranks() const { return ranks_; }
  std::size_t window_bytes() const { return window_; }

  Area& area(int rank) const { return reinterpret_cast<Area*>(base_)[rank]; }
  Ring& ring(Stream stream, int from, int to) const {
    const auto n = static_cast<std::size_t>(ranks_);
    const std::size_t index =
        (static_cast<std::size_t>(stream) * n + static_cast<std::size_t>(from)) * n +
        static_cast<std::size_t>(to);
    return reinterpret_cast<Ring*>(base_ + n * sizeof(Area))[index];
  }
  std::byte* one_shot(int rank, std::uint64_t sequence) const {
    return staging(rank) + (sequence % kOneShotSlots) * kOneShotBytes;
  }
  std::byte* window(int rank, std::uint64_t index) const {
    return staging(rank) + kOneShotSlots * kOneShotBytes + (index % kWindows) * window_;
  }

 private:
  std::byte* staging(int rank) const;

  std::byte* base_;
  int ranks_;
  std::size_t window_;
};

}  // namespace lockstep::shared
