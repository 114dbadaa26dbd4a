#include "lockstep/parallel/server/wire/pipe.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/base/net/unix_socket.h"
#include "lockstep/comm/native/memory.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kPipeBytes = std::size_t{512} * 1024;
// A writer that found a ring full is woken when this many bytes are free again.
constexpr std::size_t kWorthWaking = kPipeBytes / 2;
constexpr std::size_t kSeparate = 128;  // bytes from one writer's line to another's

}  // namespace

// Bytes [read, written) are on their way. The flags are set by who sleeps and taken by who wakes
// it.
struct SlicePipe::Ring {
  alignas(kSeparate) std::atomic<std::uint64_t> written;
  alignas(kSeparate) std::atomic<std::uint64_t> read;
  alignas(kSeparate) std::atomic<bool> reader_sleeps;
  std::atomic<bool> writer_sleeps;
  alignas(kSeparate) std::byte bytes[kPipeBytes];

  std::size_t filled() const {
    return written.load(std::memory_order_seq_cst) - read.load(std::memory_order_seq_cst);
  }
};

struct SlicePipe::Rings {
  Ring ring[2];  // of who made them, of who took them
};

SlicePipe::SlicePipe(UniqueFd socket, const Protection& protection, std::string between,
                     std::vector<int> ranks)
    : stream_(std::move(socket), protection),
      between_(std::move(between)),
      ranks_(std::move(ranks)) {
  set_nodelay(fd());
}

SlicePipe::SlicePipe(UniqueFd socket, SharedMemory memory, int side)
    : stream_(std::move(socket)),
      memory_(std::move(memory)),
      out_(&reinterpret_cast<Rings*>(memory_.get())->ring[side]),
      in_(&reinterpret_cast<Rings*>(memory_.get())->ring[1 - side]) {}

SlicePipe SlicePipe::make_rings(UniqueFd socket, Deadline deadline) {
  const UniqueFd file = make_memory_file(sizeof(Rings));
  SharedMemory memory = map_file(file.get(), sizeof(Rings));
  const std::byte announcement{1};
  const int fds[] = {file.get()};
  send_with_fds(socket.get(), {&announcement, 1}, fds, deadline);
  return SlicePipe(std::move(socket), std::move(memory), 0);
}

SlicePipe SlicePipe::take_rings(UniqueFd socket, Deadline deadline) {
  std::byte announcement;
  const std::vector<UniqueFd> fds = receive_with_fds(socket.get(), {&announcement, 1}, 1, deadline);
  if (fds.size() != 1) {
    fail(ErrorCode::kProtocol, "received a message where shared memory was expected");
  }
  SharedMemory memory = map_file(fds[0].get(), sizeof(Rings));
  return SlicePipe(std::move(socket), std::move(memory), 1);
}

void SlicePipe::end_writing() {
  if (is_open()) ::shutdown(fd(), SHUT_WR);
}

std::optional<std::size_t> SlicePipe::write(std::span<const iovec> parts) {
  if (memory_ != nullptr) return write_ring(parts);
  constexpr std::size_t kMostParts = 4;
  std::array<std::span<const std::byte>, kMostParts> spans;
  std::size_t used = 0;
  for (const iovec& part : parts.first(std::min(parts.size(), kMostParts))) {
    spans[used++] = {static_cast<const std::byte*>(part.iov_base), part.iov_len};
  }
  return stream_.write(std::span(spans).first(used));
}

std::optional<std::size_t> SlicePipe::write_ring(std::span<const iovec> parts) {
  if (ended_) return std::nullopt;
  const std::uint64_t start = out_->written.load(std::memory_order_relaxed);
  std::uint64_t at = start;
  std::size_t free_bytes = kPipeBytes - std::min(out_->filled(), kPipeBytes);
  for (const iovec& part : parts) {
    const auto* from = static_cast<const std::byte*>(part.iov_base);
    for (std::size_t left = std::min(part.iov_len, free_bytes); left > 0;) {
      const std::size_t offset = at % kPipeBytes;
      const std::size_t bytes = std::min(left, kPipeBytes - offset);
      std::memcpy(out_->bytes + offset, from, bytes);
      from += bytes, at += bytes, left -= bytes, free_bytes -= bytes;
    }
  }
  if (at == start) return 0;
  out_->written.store(at, std::memory_order_seq_cst);
  if (out_->reader_sleeps.load(std::memory_order_seq_cst) && out_->reader_sleeps.exchange(false)) {
    knock();
  }
  return at - start;
}

std::optional<std::size_t> SlicePipe::read(std::span<std::byte> into) {
  if (memory_ != nullptr) return read_ring(into);
  try {
    const auto got = stream_.read(into);
    may_have_more_ = got.value_or(0) > 0;
    return got;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorrupted) throw;
    throw Error(
        ErrorCode::kCorrupted,
        fmt::format("the data between {} is corrupted: {}; the network or the memory of one "
                    "of the machines is faulty",
                    between_, error.what()),
        ranks_);
  }
}

std::optional<std::size_t> SlicePipe::read_ring(std::span<std::byte> into) {
  const bool had_ended = ended_;  // bytes written before the end are read after it
  const std::uint64_t start = in_->read.load(std::memory_order_relaxed);
  std::uint64_t at = start;
  std::size_t left = std::min({into.size(), in_->filled(), kPipeBytes});
  if (left == 0) return had_ended ? std::nullopt : std::optional<std::size_t>(0);
  while (left > 0) {
    const std::size_t offset = at % kPipeBytes;
    const std::size_t bytes = std::min(left, kPipeBytes - offset);
    std::memcpy(into.data() + (at - start), in_->bytes + offset, bytes);
    at += bytes, left -= bytes;
  }
  in_->read.store(at, std::memory_order_seq_cst);
  if (in_->writer_sleeps.load(std::memory_order_seq_cst) &&
      kPipeBytes - in_->filled() >= kWorthWaking && in_->writer_sleeps.exchange(false)) {
    knock();
  }
  return at - start;
}

bool SlicePipe::may_sleep(bool to_read, bool to_write) {
  if (memory_ == nullptr) return !(to_read && may_have_more_);
  if (to_read) in_->reader_sleeps.store(true, std::memory_order_seq_cst);
  if (to_write) out_->writer_sleeps.store(true, std::memory_order_seq_cst);
  return !(to_read && in_->filled() > 0) &&
         !(to_write && kPipeBytes - std::min(out_->filled(), kPipeBytes) >= kWorthWaking);
}

SlicePipe::Woken SlicePipe::wake_up(bool readable) {
  if (memory_ == nullptr) return {readable || may_have_more_, false};
  in_->reader_sleeps.store(false, std::memory_order_relaxed);
  out_->writer_sleeps.store(false, std::memory_order_relaxed);
  if (readable) hear();
  return {ended_ || in_->filled() > 0, ended_ || out_->filled() < kPipeBytes};
}

// A byte that cannot be sent is not missed: others are there, unheard, or the end is.
void SlicePipe::knock() {
  const std::byte one{1};
  [[maybe_unused]] const ssize_t done = ::send(fd(), &one, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void SlicePipe::hear() {
  std::byte knocks[64];
  while (!ended_) {
    const ssize_t got = ::recv(fd(), knocks, sizeof knocks, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) ended_ = true;
  }
}

}  // namespace lockstep::parallel
