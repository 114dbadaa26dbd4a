#include "lockstep/comm/transport/paced_channel.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::transport {
namespace {

using std::chrono::nanoseconds;

struct PieceHeader {
  std::uint64_t bytes = 0;
  std::int64_t first = 0;  // nanoseconds of the steady clock
};
constexpr std::size_t kPacedUnit = 16;
static_assert(sizeof(PieceHeader) == kPacedUnit);

// A piece wakes its receiver and becomes visible as a whole. Its length trades CPU time for
// smoothness.
constexpr double kPieceSeconds = 0.5e-3;
constexpr std::size_t kSmallestPiece = 1024;
constexpr std::size_t kLargestPiece = std::size_t{64} * 1024;
static_assert(2 * (kLargestPiece + kPacedUnit) <= shared::kRingBytes);

// How far a sender may be ahead of its NIC, and when it continues. The NIC stays busy even if the
// sender wakes up late.
constexpr nanoseconds kFull = std::chrono::milliseconds(2);
constexpr nanoseconds kHalf = kFull / 2;

constexpr std::size_t kLeastHeld = std::size_t{1} << 20;

std::size_t longest_piece(const LinkEmulation& link) {
  const double wanted = link.bytes_per_second * kPieceSeconds;
  const double bytes =
      std::clamp(wanted, static_cast<double>(kSmallestPiece), static_cast<double>(kLargestPiece));
  return static_cast<std::size_t>(bytes) / kPacedUnit * kPacedUnit;
}

// Twice what is under way on a link that is never idle.
std::size_t most_held(const LinkEmulation& link) {
  const std::chrono::duration<double> under_way = link.delay + kFull;
  const double bytes = 2 * link.bytes_per_second * under_way.count();
  return std::max(kLeastHeld, static_cast<std::size_t>(bytes));
}

}  // namespace

PacedChannel::PacedChannel(const RingChannel& ring, std::shared_ptr<EmulatedNic> nic)
    : ring_(ring),
      nic_(std::move(nic)),
      piece_bytes_(longest_piece(nic_->link)),
      most_held_(most_held(nic_->link)) {}

std::size_t PacedChannel::write(std::span<const std::span<const std::byte>> parts) {
  std::size_t total = 0;
  for (const auto part : parts) total += part.size();
  const std::size_t bytes = std::min(total, piece_bytes_);
  if (bytes == 0) return 0;
  write_due_ = kNoDeadline;
  if (ring_.free_bytes() < sizeof(PieceHeader) + bytes) return 0;  // the reader will ring
  const Time now = SteadyClock::now();
  if (const Time free = nic_->egress.free_at(); free > now + kFull) {
    write_due_ = free - kHalf;
    return 0;
  }
  const Time gone = nic_->egress.book(bytes, now);
  const Time first = gone - nic_->link.passage_time(bytes) + nic_->link.delay;
  const PieceHeader header{bytes, nanoseconds(first.time_since_epoch()).count()};
  std::array<std::span<const std::byte>, 4> piece = {std::as_bytes(std::span(&header, 1))};
  std::size_t used = 1;
  std::size_t left = bytes;
  for (const auto part : parts) {
    if (part.empty() || left == 0 || used == piece.size()) continue;
    piece[used] = part.first(std::min(part.size(), left));
    left -= piece[used++].size();
  }
  ring_.write(std::span(piece).first(used));
  return bytes;
}

void PacedChannel::take_from_ring() {
  while (held_ < most_held_ && ring_.peek().size() >= sizeof(PieceHeader)) {
    PieceHeader header;
    ring_.read(std::as_writable_bytes(std::span(&header, 1)));
    if (header.bytes == 0 || header.bytes > kLargestPiece) {
      fail(ErrorCode::kProtocol, "an emulated link carries a piece of {} bytes; at most {} fit",
           header.bytes, kLargestPiece);
    }
    Piece piece{{}, Time(nanoseconds(header.first))};
    if (!spare_.empty()) {
      piece.bytes = std::move(spare_.back());
      spare_.pop_back();
    }
    piece.bytes.resize(header.bytes);
    if (ring_.read(piece.bytes) < header.bytes) {
      fail(ErrorCode::kProtocol, "an emulated link carries a part of a piece of {} bytes",
           header.bytes);
    }
    held_ += header.bytes;
    pieces_.push_back(std::move(piece));
  }
}

std::span<const std::byte> PacedChannel::peek() {
  if (!here_) {
    take_from_ring();
    if (pieces_.empty()) return {};
    const Piece& front = pieces_.front();
    const Time now = SteadyClock::now();
    if (!booked_ && front.first <= now) {
      arrived_ = nic_->ingress.book(front.bytes.size(), front.first);
      booked_ = true;
    }
    here_ = booked_ && arrived_ <= now;
    if (!here_) return {};
  }
  return std::span(pieces_.front().bytes).subspan(consumed_);
}

void PacedChannel::consume(std::size_t bytes) {
  consumed_ += bytes;
  Piece& front = pieces_.front();
  if (consumed_ < front.bytes.size()) return;
  held_ -= front.bytes.size();
  spare_.push_back(std::move(front.bytes));
  pieces_.pop_front();
  booked_ = here_ = false;
  consumed_ = 0;
}

Deadline PacedChannel::read_due() const {
  if (pieces_.empty() || here_) return kNoDeadline;
  return booked_ ? arrived_ : pieces_.front().first;
}

}  // namespace lockstep::transport
