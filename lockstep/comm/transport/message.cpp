#include "lockstep/comm/transport/message.h"

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/comm/reduce/combine.h"

namespace lockstep::transport {
namespace {

constexpr std::size_t kUnit = 16;
constexpr std::array<std::byte, kUnit> kPadding{};

std::size_t padding_after(std::size_t bytes) { return (kUnit - bytes % kUnit) % kUnit; }

}  // namespace

OutgoingMessage::OutgoingMessage(Channel& channel, int peer, const Fingerprint& fingerprint,
                                 std::span<const std::byte> payload)
    : channel_(&channel),
      peer_(peer),
      header_{hash(fingerprint), payload.size(), fingerprint},
      payload_(payload),
      total_(sizeof(MessageHeader) + payload.size() + padding_after(payload.size())) {}

bool OutgoingMessage::progress() {
  const auto rest = [](std::span<const std::byte> part, std::size_t skip) {
    return part.subspan(std::min(skip, part.size()));
  };
  const std::size_t past_header = sent_ > sizeof(header_) ? sent_ - sizeof(header_) : 0;
  const std::size_t past_payload =
      past_header > payload_.size() ? past_header - payload_.size() : 0;
  const std::array<std::span<const std::byte>, 3> parts = {
      rest(std::as_bytes(std::span(&header_, 1)), sent_), rest(payload_, past_header),
      rest(std::span(kPadding).first(padding_after(payload_.size())), past_payload)};
  const std::size_t moved = channel_->write(parts);
  sent_ += moved;
  return moved > 0;
}

IncomingMessage::IncomingMessage(Channel& channel, int rank, int peer, const Fingerprint& expected,
                                 const Landing& landing, const History* history)
    : channel_(&channel),
      rank_(rank),
      peer_(peer),
      expected_{hash(expected), landing.bytes, expected},
      history_(history),
      landing_(landing),
      padding_(padding_after(landing.bytes)) {}

void IncomingMessage::check_header() const {
  if (header_.hash == expected_.hash && header_.bytes == expected_.bytes) return;
  if (header_.hash != hash(header_.fingerprint)) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("rank {} sent bytes that are not a message header", peer_), {peer_});
  }
  if (header_.hash == expected_.hash) {
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("ranks disagree on {}: rank {} sends {} bytes to rank {}, which expects {}",
                    describe(expected_.fingerprint), peer_, header_.bytes, rank_, expected_.bytes),
        {peer_});
  }
  if (expected_.fingerprint.kind == Collective::kSend) {
    const Fingerprint& sent = header_.fingerprint;
    throw Error(ErrorCode::kMismatch,
                fmt::format("ranks disagree on message {}: rank {} sends {} {} to rank {}, which "
                            "receives {} {}",
                            sent.sequence, peer_, sent.count, name(sent.dtype), rank_,
                            expected_.fingerprint.count, name(expected_.fingerprint.dtype)),
                {peer_});
  }
  if (history_ != nullptr) history_->compare(rank_, peer_, header_.fingerprint);
  throw disagreement(rank_, expected_.fingerprint, peer_, header_.fingerprint);
}

bool IncomingMessage::progress_payload() {
  const std::size_t wanted = landing_.bytes - read_;
  if (landing_.operand == nullptr) {
    const std::size_t moved = channel_->read({landing_.target + read_, wanted});
    read_ += moved;
    return moved > 0;
  }
  const std::size_t element = size_of(landing_.dtype);
  const std::span<const std::byte> arrived = channel_->peek();
  const std::size_t count = std::min(arrived.size(), wanted) / element;
  if (count == 0) return false;
  const std::array<const std::byte*, 2> inputs = {landing_.operand + read_, arrived.data()};
  std::byte* const output = landing_.target + read_;
  combine(inputs, {&output, 1}, count, landing_.dtype, landing_.op);
  channel_->consume(count * element);
  read_ += count * element;
  return true;
}

bool IncomingMessage::progress() {
  try {
    return advance();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorrupted) throw;
    throw Error(ErrorCode::kCorrupted,
                fmt::format("the data of {} from rank {} to rank {} is corrupted, after {} of {} "
                            "bytes of a message: {}; the network or the memory of one of the "
                            "machines is faulty",
                            describe(expected_.fingerprint), peer_, rank_, read_, landing_.bytes,
                            error.what()),
                {peer_, rank_});
  }
}

bool IncomingMessage::advance() {
  bool moved = false;
  if (header_read_ < sizeof(header_)) {
    const std::size_t got =
        channel_->read(std::as_writable_bytes(std::span(&header_, 1)).subspan(header_read_));
    header_read_ += got;
    moved = got > 0;
    if (header_read_ < sizeof(header_)) return moved;
    check_header();
  }
  while (read_ < landing_.bytes) {
    if (!progress_payload()) return moved;
    moved = true;
  }
  if (padding_ > 0) {
    std::array<std::byte, kUnit> ignored;
    const std::size_t got = channel_->read(std::span(ignored).first(padding_));
    padding_ -= got;
    moved |= got > 0;
  }
  return moved;
}

}  // namespace lockstep::transport
