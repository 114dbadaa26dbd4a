// One connection between a worker and a parameter server: sends messages by priority, and receives
// messages directly into their memory. Never blocks; a ConnectionLoop
// (parallel/server/wire/connection_loop.h) drives it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "lockstep/parallel/server/slices/message.h"
#include "lockstep/parallel/server/wire/emulated_nic.h"
#include "lockstep/parallel/server/wire/pipe.h"

namespace lockstep::parallel {

class Connection {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // With an emulated NIC, which must outlive it, data is sent in chunks at the NIC's speed.
  explicit Connection(SlicePipe pipe, EmulatedNic* nic = nullptr)
      : pipe_(std::move(pipe)), nic_(nic) {}

  SlicePipe& pipe() { return pipe_; }
  int fd() const { return pipe_.fd(); }
  void close() { pipe_.close(); }
  bool is_open() const { return pipe_.is_open(); }

  // ---- out

  // `number` orders messages of equal priority, also between connections.
  void post(OutMessage message, std::uint64_t number, Time now);
  bool has_more() const { return is_sending() || !queue_.empty(); }
  using Urgency = std::pair<Priority, std::uint64_t>;
  // The most urgent message that is queued or being sent; only if has_more().
  Urgency first() const;
  // Sends everything, or with a NIC one chunk. What was given to the pipe cannot be overtaken.
  // False: the pipe accepts no more now. A broken pipe discards everything; the reading side
  // reports the loss.
  bool send();
  std::uint64_t bytes_sent() const { return bytes_sent_; }

  // ---- in

  enum class Progress {
    kNothing,  // nothing more to read now
    kSome,
    kHeader,  // a header has arrived: call give_place() with the memory for the payload
    kWhole,   // a message is complete: header(), payload(), and when it may be used
    kClosed,
  };
  Progress receive();
  const Header& header() const { return header_; }
  void give_place(std::span<std::byte> place) { payload_ = place; }
  std::span<std::byte> payload() const { return payload_; }
  Time seen_at() const { return seen_at_; }
  void next_message();  // after a whole one has been handled
  // Reads and discards; false if the connection is closed.
  bool drain();

 private:
  bool is_sending() const { return sending_ || prefix_left_ > 0; }
  bool write();
  void begin_chunk();
  Progress read(std::span<std::byte> into, std::size_t& filled);

  struct Waiting {
    OutMessage message;
    Urgency urgency;
    Time since;
  };

  SlicePipe pipe_;
  EmulatedNic* nic_;

  std::map<Urgency, Waiting> queue_;
  bool sending_ = false;
  Waiting current_;
  std::size_t sent_ = 0;   // of the current message, header included
  std::size_t limit_ = 0;  // the byte up to which it may be sent now
  ChunkHeader prefix_;
  std::size_t prefix_left_ = 0;
  std::uint64_t bytes_sent_ = 0;
  bool broken_ = false;

  Header header_;
  std::size_t header_filled_ = 0;
  std::span<std::byte> payload_;
  std::size_t payload_filled_ = 0;
  ChunkHeader chunk_;
  std::size_t chunk_header_filled_ = 0;
  std::size_t chunk_left_ = 0;
  Time seen_at_{};
};

}  // namespace lockstep::parallel
