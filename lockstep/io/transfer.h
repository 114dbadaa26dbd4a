// Asynchronous transfers between memory and a file.
//
// A *transfer* brings a range of a file into memory or back. An *engine* carries transfers out
// while its caller does other things. There are two: io_uring, and threads with pread() and
// pwrite() if io_uring is not allowed (an old kernel, a container).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace lockstep::io {

struct Transfer {
  int file = -1;
  bool writes = false;
  // The rest of the transfer.
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  std::uint64_t offset = 0;

  bool done = false;
  int error = 0;  // an errno; kFileEnded where there was nothing more to read

  static constexpr int kFileEnded = -1;
};

// One thread at a time. A started transfer and its memory must stay in place until it is finished;
// all must be finished before the engine is destroyed.
class TransferEngine {
 public:
  virtual ~TransferEngine() = default;
  virtual std::string_view name() const = 0;  // "io_uring", "threads"

  // Starts a transfer. With many running it may first wait for one of them.
  virtual void start(Transfer& transfer) = 0;
  // Waits until it has ended, successfully or not. Short and interrupted transfers are continued.
  virtual void finish(Transfer& transfer) = 0;
};

// Nothing where the system refuses.
std::unique_ptr<TransferEngine> make_uring_engine();
std::unique_ptr<TransferEngine> make_thread_engine();

// By the calling thread, to its end.
void carry_out(Transfer& transfer);

// Takes in how much a system call moved, or its negative errno; returns whether the transfer is
// done. Where it is not, the rest is to be moved.
bool advance(Transfer& transfer, long result);

}  // namespace lockstep::io
