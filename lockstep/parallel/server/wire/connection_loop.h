// The event loop of the connections of a worker or server: one thread, which sleeps while idle.
//
// A message is received directly into the memory that the handler names, and delivered when it is
// complete (with an emulated link: when its last byte would have arrived). Until then, the next
// message of the same connection is not read.
//
// With an emulated link, connections take turns, chunk by chunk, each with its most urgent message;
// only control messages go first. If instead the most urgent message of all connections were sent
// first, all workers would send to the same server at a time, at the speed of one NIC, while the
// NICs of other servers are idle.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/system/deadline.h"
#include "lockstep/parallel/server/wire/connection.h"

namespace lockstep::parallel {

class ConnectionLoop {
 public:
  class Receiver {
   public:
    virtual ~Receiver() = default;
    // The memory for the payload of a message, of header.bytes, valid until take(). Throw an Error
    // for an invalid message; step() rethrows it.
    virtual std::span<std::byte> place(int connection, const Header& header) = 0;
    virtual void take(int connection, const Header& header, std::span<std::byte> payload) = 0;
    // The peer has closed the connection or died.
    virtual void lost(int connection) = 0;
  };

  explicit ConnectionLoop(Receiver& receiver,
                          const std::optional<LinkEmulation>& link = std::nullopt);

  // Adds a connection; returns its number, from 0.
  int add(SlicePipe pipe);
  void post(int connection, OutMessage message);
  void close(int connection) { at(connection).close(); }
  bool is_open(int connection) const { return connections_[index(connection)]->is_open(); }
  // Whether messages are left to send.
  bool has_more_to_send() const;
  std::uint64_t bytes_sent() const;

  // Sends and receives what is possible; waits for events until the deadline.
  void step(Deadline until);
  // Closes all connections: sends what was posted, and waits until the peers have closed them, so
  // that nothing is lost. Discards what still arrives.
  void finish(Deadline until);
  // Ends the current or the next step(). Thread-safe.
  void wake();

 private:
  static std::size_t index(int connection) { return static_cast<std::size_t>(connection); }
  Connection& at(int connection) { return *connections_[index(connection)]; }
  bool any_open() const;
  std::optional<std::size_t> next_on_line() const;
  Deadline send();
  void receive(int connection);
  Deadline hand_over();

  Receiver& receiver_;
  std::unique_ptr<EmulatedNic> nic_;
  UniqueFd wake_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<bool> full_;   // the pipe is full
  std::vector<bool> whole_;  // a complete message waits for its arrival time
  std::uint64_t posted_ = 0;
  std::size_t on_line_ = 0;  // the connection that sent last
  bool deaf_ = false;
};

}  // namespace lockstep::parallel
