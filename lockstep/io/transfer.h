// Bytes on their way between memory and a file, several at a time: how that is done.
//
// A *transfer* brings a range of a file into memory or back. An *engine* carries transfers out
// while its caller does other things. There are two: io_uring, where the kernel does it by itself,
// and threads that wait in pread() and pwrite(), where io_uring is refused (an old kernel, a
// container that forbids it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace lockstep::io {

struct Transfer {
  int file = -1;
  bool writes = false;
  // What is left of it.
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  std::uint64_t offset = 0;

  bool done = false;
  int error = 0;  // an errno; kFileEnded where there was nothing more to read

  static constexpr int kFileEnded = -1;
};

// One thread at a time. A transfer that was started stays where it is, and so does its memory,
// until it is finished; before the engine goes, all are.
class TransferEngine {
 public:
  virtual ~TransferEngine() = default;
  virtual std::string_view name() const = 0;  // "io_uring", "threads"

  // Returns as soon as it is under way. With many under way it may wait for one of them first.
  virtual void start(Transfer& transfer) = 0;
  // Waits until it is done, well or with an error. What came short is gone on with, and what a
  // signal broke off is done again.
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
