// One pipe between a worker and a parameter server: messages out by priority, messages in
// straight to their place. Nothing here waits; a connection loop
// (parallel/server/wire/connection_loop.h) says when to go on.
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

  // With a NIC, which must outlive it, all is cut into chunks that keep the NIC's pace.
  explicit Connection(SlicePipe pipe, EmulatedNic* nic = nullptr)
      : pipe_(std::move(pipe)), nic_(nic) {}

  SlicePipe& pipe() { return pipe_; }
  int fd() const { return pipe_.fd(); }
  void close() { pipe_.close(); }
  bool is_open() const { return pipe_.is_open(); }

  // ---- out

  // `number` orders messages of equal priority, also among connections.
  void post(OutMessage message, std::uint64_t number, Time now);
  bool has_more() const { return is_sending() || !queue_.empty(); }
  using Urgency = std::pair<Priority, std::uint64_t>;
  // Of what waits or is on its way, the most important; only with has_more().
  Urgency first() const;
  // What is given to the pipe or to the line cannot be overtaken. Sends on: all there is, or with
  // a NIC a chunk. False: the pipe takes no more now. One that is broken takes everything; the
  // reading side hears of it.
  bool send();
  std::uint64_t bytes_sent() const { return bytes_sent_; }

  // ---- in

  enum class Progress {
    kNothing,  // there is no more to read now
    kSome,
    kHeader,  // a header has come: give_place() must say where the payload goes
    kWhole,   // a message has come: header(), payload(), and from when on it may be seen
    kClosed,
  };
  Progress receive();
  const Header& header() const { return header_; }
  void give_place(std::span<std::byte> place) { payload_ = place; }
  std::span<std::byte> payload() const { return payload_; }
  Time seen_at() const { return seen_at_; }
  void next_message();  // after a whole one has been handled
  // Reads what is there to no purpose; false when the connection is closed.
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
  std::size_t limit_ = 0;  // so far it may be sent now
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
