// The flight recorder: the last operations of a rank, in memory that the other ranks of its node
// can read after its death. Collectives are in one ring; messages and signals, which run
// concurrently on several threads, in another.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/comm/fingerprint.h"
#include "lockstep/comm/shared/segment.h"

namespace lockstep {

// A recorded message or signal.
struct MessageNote {
  shared::MessageKind kind = shared::MessageKind::kSend;
  int peer = 0;
  std::uint64_t number = 0;  // among those of its kind with that peer
  std::uint64_t count = 0;   // elements; of messages
  DType dtype = DType::kF32;
};

class Recorder {
 public:
  explicit Recorder(shared::Area& area) : area_(area) {}

  // Records the start of a collective; end() finishes the record. One thread at a time.
  shared::Record& begin(const Fingerprint& fingerprint) {
    shared::Record& record = area_.records[next_++ % shared::kRecords];
    record.started.store(ticks(), std::memory_order_relaxed);
    record.ended.store(0, std::memory_order_relaxed);
    record.fingerprint.store(fingerprint);
    return record;
  }
  static void end(shared::Record& record) {
    record.ended.store(ticks(), std::memory_order_relaxed);
  }

  // Records the start of a message or signal, on any thread; pass the result to end_message().
  std::uint64_t begin_message(const MessageNote& note);
  void end_message(std::uint64_t serial);

 private:
  shared::Area& area_;
  std::uint64_t next_ = 0;
  std::atomic<std::uint64_t> messages_{0};
};

// The newest `most` collectives in an area, and as many messages and signals, in the order in which
// they started, a line each:
//   operation 41: all_reduce of 1024 f32, sum: took 12 us, ended 3 ms ago
//   receive 3: 1024 f32 from rank 2: started 2 s ago, not ended
std::string recorded_operations(const shared::Area& area, int most);

// Logs the error, and the last operations of this rank and of the ranks of the error whose areas
// this process maps (`areas` by rank). Writes the same text to `path` unless that is empty; a
// failure to write is logged.
void dump_recorders(const Error& error, int rank, int size,
                    const std::map<int, const shared::Area*>& areas, const std::string& path);

}  // namespace lockstep
