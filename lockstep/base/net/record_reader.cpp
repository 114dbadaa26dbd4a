#include "lockstep/base/net/record_reader.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/simd/crc32c.h"

namespace lockstep {
namespace {

constexpr std::size_t kLargestRecordFrame = sizeof(RecordHeader) + kLongestRecord + kAeadTagBytes;
// What follows a record is received with it, but not so much that the cache loses it.
constexpr std::size_t kBufferBytes = 2 * kLargestRecordFrame;
// What is read with a header. A connection that carries only small messages needs no more, and the
// rest of a long message is not copied twice.
constexpr std::size_t kSmallBuffer = std::size_t{4} << 10;
// Shorter content is not worth a system call of its own.
constexpr std::size_t kStraight = std::size_t{8} << 10;

}  // namespace

RecordReader::RecordReader(const Protection& protection) {
  if (protection.encrypted) aead_.emplace(protection.from_peer, Aead::Use::kOpen);
}

std::size_t RecordReader::receive(int socket, std::span<std::byte> into,
                                  std::span<std::byte> then) {
  std::array<iovec, 2> vectors = {iovec{into.data(), into.size()}, iovec{then.data(), then.size()}};
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = then.empty() ? 1 : 2;
  while (!ended_) {
    const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    ended_ = true;
    loss_ = got == 0 ? "it closed the connection" : std::generic_category().message(errno);
  }
  return 0;
}

bool RecordReader::fill(int socket, std::size_t needed) {
  if (begin_ == end_) begin_ = end_ = 0;
  const std::size_t wanted = needed > kSmallBuffer ? kBufferBytes : kSmallBuffer;
  if (begin_ > 0 && begin_ + needed > buffer_.size()) {
    std::memmove(buffer_.data(), front(), buffered());
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < wanted) buffer_.resize(wanted);
  auto space = std::span(buffer_).subspan(end_);
  if (needed <= sizeof header_) space = space.first(std::min(space.size(), kSmallBuffer));
  const std::size_t got = receive(socket, space);
  end_ += got;
  return got > 0;
}

bool RecordReader::open(int socket) {
  if (left_ > 0) return true;
  if (buffered() < sizeof header_ && !fill(socket, sizeof header_)) return false;
  if (buffered() < sizeof header_) return false;
  std::memcpy(&header_, front(), sizeof header_);
  header_.check(number_);
  begin_ += sizeof header_;
  left_ = header_.length;
  checked_ = false;
  sum_ = 0;
  return true;
}

void RecordReader::fail_content(std::string_view how) const {
  fail(ErrorCode::kCorrupted, "record {} of {} bytes, after {} bytes on this connection, {}",
       number_, header_.length, bytes_read_, how);
}

void RecordReader::open_sealed(std::byte* opened) {
  const std::span<const std::byte, kAeadTagBytes> tag(front() + left_, kAeadTagBytes);
  if (!aead_->open(number_, header_.bytes(), {front(), left_}, tag, opened)) {
    fail_content("is not what was encrypted");
  }
}

// The rest of the record is in the buffer.
void RecordReader::check_content() {
  if (aead_) {
    open_sealed(front());
  } else if (const std::uint32_t sum = crc32c({front(), left_}, sum_); sum != header_.content) {
    fail_content(fmt::format("has the checksum {:08x}, expected {:08x}", sum, header_.content));
  }
  checked_ = true;
}

void RecordReader::finish_record() {
  bytes_read_ += header_.length;
  ++number_;
}

std::optional<std::span<const std::byte>> RecordReader::peek(int socket) {
  const std::span<const std::byte> none;
  if (!open(socket)) return ended_ ? std::nullopt : std::optional(none);
  while (!checked_) {
    if (buffered() >= needed()) {
      check_content();
    } else if (!fill(socket, needed())) {
      return ended_ ? std::nullopt : std::optional(none);
    }
  }
  return std::span<const std::byte>(front(), left_);
}

void RecordReader::consume(std::size_t bytes) {
  begin_ += bytes;
  left_ -= bytes;
  if (left_ > 0 || bytes == 0) return;
  if (aead_) begin_ += kAeadTagBytes;
  finish_record();
}

// The rest of an open record of a checksummed stream, which `into` has space for: what is in the
// buffer, then what has arrived, and the next header with it.
std::size_t RecordReader::read_straight(int socket, std::span<std::byte> into) {
  const std::size_t before = left_;
  const auto take = [&](std::size_t bytes) {
    sum_ = crc32c(into.first(bytes), sum_);
    into = into.subspan(bytes);
    left_ -= bytes;
  };
  if (buffered() > 0) {
    const std::size_t bytes = buffered();
    std::memcpy(into.data(), front(), bytes);
    begin_ = end_ = 0;
    take(bytes);
  }
  const std::size_t got =
      receive(socket, into.first(left_), std::span(buffer_).first(sizeof header_));
  const std::size_t content = std::min(got, left_);
  take(content);
  begin_ = 0;
  end_ = got - content;
  if (left_ == 0) {
    if (sum_ != header_.content) {
      fail_content(fmt::format("has the checksum {:08x}, expected {:08x}", sum_, header_.content));
    }
    finish_record();
  }
  return before - left_;
}

// The same for an encrypted stream: a whole record, decrypted to `into`.
std::size_t RecordReader::decrypt_straight(int socket, std::span<std::byte> into) {
  while (buffered() < needed()) {
    if (!fill(socket, needed())) return 0;
  }
  open_sealed(into.data());
  const std::size_t moved = left_;
  consume(moved);
  return moved;
}

std::optional<std::size_t> RecordReader::read(int socket, std::span<std::byte> into) {
  std::size_t total = 0;
  while (total < into.size()) {
    const auto rest = into.subspan(total);
    if (!open(socket)) break;
    std::size_t moved = 0;
    if (!aead_ && !checked_ && rest.size() >= left_ && left_ > buffered() &&
        (left_ >= kStraight || sum_ != 0)) {
      moved = read_straight(socket, rest);
    } else if (aead_ && !checked_ && rest.size() >= left_) {
      moved = decrypt_straight(socket, rest);
    } else if (const auto arrived = peek(socket); arrived && !arrived->empty()) {
      moved = std::min(arrived->size(), rest.size());
      std::memcpy(rest.data(), arrived->data(), moved);
      consume(moved);
    }
    if (moved == 0) break;
    total += moved;
  }
  if (total == 0 && ended_ && !into.empty()) return std::nullopt;
  return total;
}

}  // namespace lockstep
