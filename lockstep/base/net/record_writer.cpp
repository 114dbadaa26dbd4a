#include "lockstep/base/net/record_writer.h"

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

constexpr std::size_t kMostVectors = 8;
// Content of encrypted records that leave in one system call.
constexpr std::size_t kSealedAtOnce = std::size_t{32} << 10;

// Calls visit(part) for bytes [from, from + count) of the parts; returns how many there were.
template <class Visit>
std::size_t each_part(std::span<const std::span<const std::byte>> parts, std::size_t from,
                      std::size_t count, Visit&& visit) {
  std::size_t found = 0;
  for (std::span<const std::byte> part : parts) {
    const std::size_t skipped = std::min(from, part.size());
    from -= skipped;
    part = part.subspan(skipped);
    part = part.first(std::min(part.size(), count - found));
    if (part.empty()) continue;
    visit(part);
    found += part.size();
  }
  return found;
}

}  // namespace

RecordWriter::RecordWriter(const Protection& protection) {
  if (protection.encrypted) aead_.emplace(protection.to_peer, Aead::Use::kSeal);
}

void RecordWriter::begin(std::span<const std::span<const std::byte>> parts) {
  if (aead_) return begin_sealed(parts);
  content_.clear();
  left_ = each_part(parts, 0, kLongestRecord, [&](auto part) { content_.push_back(part); });
  if (left_ == 0) return;
  header_ = {.length = static_cast<std::uint32_t>(left_),
             .number = static_cast<std::uint32_t>(number_++)};
  for (const auto part : content_) header_.content = crc32c(part, header_.content);
  header_.seal();
  framing_left_ = sizeof header_;
}

void RecordWriter::begin_sealed(std::span<const std::span<const std::byte>> parts) {
  sealed_bytes_ = 0;
  while (left_ < kSealedAtOnce) {
    content_.clear();
    const std::size_t length =
        each_part(parts, left_, kLongestSealed, [&](auto part) { content_.push_back(part); });
    if (length == 0) break;
    header_ = {.length = static_cast<std::uint32_t>(length),
               .number = static_cast<std::uint32_t>(number_)};
    header_.seal();
    const std::size_t end = sealed_bytes_ + sizeof header_ + length + kAeadTagBytes;
    if (sealed_.size() < end) sealed_.resize(end);
    std::byte* const record = sealed_.data() + sealed_bytes_;
    std::memcpy(record, &header_, sizeof header_);
    std::byte* const content = record + sizeof header_;
    aead_->seal(number_++, header_.bytes(), content_, content,
                AeadTag(content + length, kAeadTagBytes));
    sealed_bytes_ = end;
    left_ += length;
  }
  framing_left_ = sealed_bytes_;
}

std::optional<std::size_t> RecordWriter::write(int socket,
                                               std::span<const std::span<const std::byte>> parts) {
  std::size_t accepted = 0;
  std::array<std::span<const std::byte>, kMostVectors> rest;
  while (true) {
    std::size_t used = 0;
    each_part(parts, accepted, static_cast<std::size_t>(-1), [&](auto part) {
      if (used < rest.size()) rest[used++] = part;
    });
    const auto remaining = std::span(rest).first(used);
    if (left_ == 0) begin(remaining);
    if (left_ == 0) return accepted;
    if (!send(socket, remaining, accepted)) {
      return loss_.empty() ? std::optional(accepted) : std::nullopt;
    }
  }
}

// Sends what is left of the record; false if the socket took less.
bool RecordWriter::send(int socket, std::span<const std::span<const std::byte>> parts,
                        std::size_t& accepted) {
  std::array<iovec, kMostVectors + 1> vectors;
  std::size_t used = 0;
  const auto add = [&](std::span<const std::byte> part) {
    vectors[used++] = {const_cast<std::byte*>(part.data()), part.size()};
  };
  std::size_t wanted = framing_left_;
  if (aead_) {
    add(std::span(sealed_).first(sealed_bytes_).last(framing_left_));
  } else {
    if (framing_left_ > 0) add(header_.bytes().last(framing_left_));
    if (each_part(parts, 0, left_, add) < left_) {
      fail(
          ErrorCode::kInvalidArgument,
          "{} bytes that were to follow on a connection did not come; this is a defect of lockstep",
          left_);
    }
    wanted += left_;
  }
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = used;
  // A record that others follow at once need not fill whole packets of its own.
  std::size_t total = 0;
  for (const auto part : parts) total += part.size();
  const int more = total > left_ ? MSG_MORE : 0;
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT | more);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) {
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      loss_ = std::generic_category().message(errno);
    }
    return false;
  }
  const auto moved = static_cast<std::size_t>(sent);
  const std::size_t of_framing = std::min(moved, framing_left_);
  framing_left_ -= of_framing;
  // Encrypted bytes count once all of their records have left: until then the caller keeps its
  // message and so calls again.
  std::size_t content = moved - of_framing;
  if (aead_ && framing_left_ == 0) content = left_;
  accepted += content;
  left_ -= content;
  return moved == wanted;
}

}  // namespace lockstep
