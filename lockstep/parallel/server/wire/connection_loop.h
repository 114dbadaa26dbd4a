// The pipes of a worker or server, looked after by one thread that sleeps while nothing happens.
//
// A message is received where its receiver wants it, and handed over when it is whole (with an
// emulated link: when its last byte would have come). Until a message is handed over, the one
// behind it on the same connection is not looked at.
//
// With an emulated link connections take turns on the line, chunk by chunk, each with its most
// important message; only what is urgent goes before. Were the most important message of all
// connections to have the line, all workers, whose slices have the same importance, would send to
// one server and then to the next, each at the pace of one NIC while the others' have nothing to
// do. A worker gains nothing by sending faster than its share of a server's NIC.
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
    // Where the payload of such a message goes; header.bytes long, and there until take(). What
    // makes no sense is an Error, which step() throws on.
    virtual std::span<std::byte> place(int connection, const Header& header) = 0;
    virtual void take(int connection, const Header& header, std::span<std::byte> payload) = 0;
    // The other end has closed the connection, or is dead.
    virtual void lost(int connection) = 0;
  };

  explicit ConnectionLoop(Receiver& receiver,
                          const std::optional<LinkEmulation>& link = std::nullopt);

  // The number of the connection, from 0 on.
  int add(SlicePipe pipe);
  void post(int connection, OutMessage message);
  void close(int connection) { at(connection).close(); }
  bool is_open(int connection) const { return connections_[index(connection)]->is_open(); }
  // Whether anything is yet to be given to the pipes.
  bool has_more_to_send() const;
  std::uint64_t bytes_sent() const;

  // Sends and receives what can be, waiting for something to happen until the deadline comes.
  void step(Deadline until);
  // The end of all connections: sends what was posted, and waits until the others have closed them,
  // so that nothing is lost on the way. What still comes is thrown away unread.
  void finish(Deadline until);
  // Ends a step() that waits, or the next one; any thread may call it.
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
  std::vector<bool> full_;   // the pipe took no more
  std::vector<bool> whole_;  // a message waits for its time
  std::uint64_t posted_ = 0;
  std::size_t on_line_ = 0;  // the connection that sent last
  bool deaf_ = false;
};

}  // namespace lockstep::parallel
