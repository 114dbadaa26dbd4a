// A stream of bytes to and from one peer, whose end is noticed: a connected socket, or, inside one
// machine, two rings in memory that both processes see. Bytes in rings are copied by the processes
// themselves, at a fifth of what a socket costs them; then the socket beside the rings only wakes
// who sleeps, and closes with whoever dies.
//
// Nothing here waits. A pipe is used by one thread at a time.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/native/fabric.h"

namespace lockstep::parallel {

class SlicePipe {
 public:
  // Everything through the socket.
  explicit SlicePipe(UniqueFd socket);

  // Rings beside a socket inside this machine, on which nothing else is said: one end makes them
  // and hands them over, the other takes them.
  static SlicePipe make_rings(UniqueFd socket, Deadline deadline);
  static SlicePipe take_rings(UniqueFd socket, Deadline deadline);

  int fd() const { return socket_.get(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  void close() { socket_.reset(); }
  // The other end hears that nothing more will come, after all that was written.
  void end_writing();

  // How many bytes from the front of the parts were taken; nothing: the other end has gone (rings:
  // or has ended its writing).
  std::optional<std::size_t> write(std::span<const iovec> parts);
  // How many bytes have been put into `into`; nothing: no more will ever come.
  std::optional<std::size_t> read(std::span<std::byte> into);

  // ---- who sleeps on fd() until it can be read, for one thing or both

  // To be said before. False: there is something to read, or room to write, already.
  bool may_sleep(bool to_read, bool to_write);
  // To be said afterwards, with whether fd() can be read. What there is to do now:
  struct Woken {
    bool read = false;
    bool write = false;
  };
  Woken wake_up(bool readable);
  // Whether it is fd() itself that tells of room to write.
  bool polls_to_write() const { return memory_ == nullptr; }

 private:
  struct Ring;
  struct Rings;

  SlicePipe(UniqueFd socket, SharedMemory memory, int side);

  std::optional<std::size_t> write_ring(std::span<const iovec> parts);
  std::optional<std::size_t> read_ring(std::span<std::byte> into);
  void knock();
  void hear();

  UniqueFd socket_;
  SharedMemory memory_;
  Ring* out_ = nullptr;
  Ring* in_ = nullptr;
  bool ended_ = false;  // the other end has closed the socket, or ended its writing
};

}  // namespace lockstep::parallel
