// A byte stream to and from one peer that detects its death: a connected socket with records
// (base/net/record.h), or, inside a node, two rings in shared memory. Rings cost about a fifth of
// the CPU time of a socket; the socket is then used only to wake the peer and to detect its death.
//
// Never blocks. One thread at a time.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/net/record_stream.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/native/fabric.h"

namespace lockstep::parallel {

class SlicePipe {
 public:
  // Uses the socket for data. `between` names both ends in errors: "rank 1 and rank 0".
  explicit SlicePipe(UniqueFd socket, const Protection& protection = {},
                     std::string between = "a worker and a server", std::vector<int> ranks = {});

  // Rings besides a local socket that carries nothing else: one end makes them, the other receives
  // them.
  static SlicePipe make_rings(UniqueFd socket, Deadline deadline);
  static SlicePipe take_rings(UniqueFd socket, Deadline deadline);

  int fd() const { return stream_.fd(); }
  bool is_open() const { return stream_.is_open(); }
  void close() { stream_.close(); }
  // Signals to the peer that nothing follows what was written.
  void end_writing();

  // The number of bytes accepted; nothing: the peer is gone (rings: or has ended its writing). What
  // was not accepted must come again with the next call.
  std::optional<std::size_t> write(std::span<const iovec> parts);
  // The number of bytes read; nothing: the stream has ended. Throws Error(kCorrupted) for bytes
  // that changed on their way.
  std::optional<std::size_t> read(std::span<std::byte> into);

  // ---- sleeping on fd() until it is readable

  // Call it before sleeping. False: reading or writing is possible now.
  bool may_sleep(bool to_read, bool to_write);
  // Call it after sleeping, with whether fd() is readable. Returns what is possible now:
  struct Woken {
    bool read = false;
    bool write = false;
  };
  Woken wake_up(bool readable);
  // Whether fd() must be polled for writing.
  bool polls_to_write() const { return memory_ == nullptr; }

 private:
  struct Ring;
  struct Rings;

  SlicePipe(UniqueFd socket, SharedMemory memory, int side);

  std::optional<std::size_t> write_ring(std::span<const iovec> parts);
  std::optional<std::size_t> read_ring(std::span<std::byte> into);
  void knock();
  void hear();

  RecordStream stream_;  // with rings only its socket is used
  std::string between_;
  std::vector<int> ranks_;
  bool may_have_more_ = false;  // the last read() of records returned some bytes
  SharedMemory memory_;
  Ring* out_ = nullptr;
  Ring* in_ = nullptr;
  bool ended_ = false;  // the peer has closed the socket, or ended its writing
};

}  // namespace lockstep::parallel
