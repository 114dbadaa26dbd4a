#include "lockstep/comm/rendezvous/wire.h"

#include <poll.h>

#include <limits>
#include <span>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kLengthBytes = 4;

void put_number(char* at, std::uint32_t value) {
  for (std::size_t i = 0; i < kLengthBytes; ++i) at[i] = static_cast<char>(value >> (8 * i));
}

std::uint32_t get_number(const char* at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(at[i])) << (8 * i);
  }
  return value;
}

}  // namespace

FrameWriter::FrameWriter(Kind kind) : bytes_(kLengthBytes, '\0') {
  bytes_ += static_cast<char>(kind);
}

FrameWriter& FrameWriter::number(std::uint32_t value) {
  char digits[kLengthBytes];
  put_number(digits, value);
  bytes_.append(digits, kLengthBytes);
  return *this;
}

FrameWriter& FrameWriter::text(std::string_view value) {
  number(static_cast<std::uint32_t>(value.size()));
  bytes_ += value;
  return *this;
}

FrameWriter& FrameWriter::numbers(const std::vector<int>& values) {
  number(static_cast<std::uint32_t>(values.size()));
  for (const int value : values) number(static_cast<std::uint32_t>(value));
  return *this;
}

std::string FrameWriter::finish() {
  const std::size_t length = bytes_.size() - kLengthBytes;
  if (length > kLongestFrame) {
    fail(ErrorCode::kInvalidArgument,
         "a rendezvous message has at most {} bytes, this one would have {}; exchange less",
         kLongestFrame, length);
  }
  put_number(bytes_.data(), static_cast<std::uint32_t>(length));
  return std::move(bytes_);
}

FrameReader::FrameReader(std::string_view frame) : rest_(frame) {
  kind_ = static_cast<Kind>(take(1)[0]);
}

std::string_view FrameReader::take(std::size_t count) {
  if (count > rest_.size()) {
    fail(ErrorCode::kProtocol, "a rendezvous message ends {} bytes too early",
         count - rest_.size());
  }
  const std::string_view taken = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return taken;
}

std::uint32_t FrameReader::number() { return get_number(take(kLengthBytes).data()); }

int FrameReader::small_number() {
  const std::uint32_t value = number();
  if (value > static_cast<std::uint32_t>(std::numeric_limits<int>::max())) {
    fail(ErrorCode::kProtocol, "a rendezvous message has {} where a small number was expected",
         value);
  }
  return static_cast<int>(value);
}

std::string_view FrameReader::text() { return take(number()); }

std::vector<int> FrameReader::numbers() {
  const std::uint32_t count = number();
  if (count > rest_.size() / kLengthBytes) {
    fail(ErrorCode::kProtocol, "a rendezvous message lists {} numbers in {} bytes", count,
         rest_.size());
  }
  std::vector<int> values(count);
  for (int& value : values) value = small_number();
  return values;
}

void FrameReader::finish() const {
  if (!rest_.empty()) {
    fail(ErrorCode::kProtocol, "a rendezvous message has {} bytes too many", rest_.size());
  }
}

bool FrameBuffer::fill_from(RecordStream& stream) {
  while (true) {
    const auto arrived = stream.peek();
    if (!arrived) return false;
    if (arrived->empty()) return true;
    bytes_.append(reinterpret_cast<const char*>(arrived->data()), arrived->size());
    stream.consume(arrived->size());
  }
}

std::optional<std::string> FrameBuffer::next() {
  if (bytes_.size() < kLengthBytes) return std::nullopt;
  const std::size_t length = get_number(bytes_.data());
  if (length == 0 || length > kLongestFrame) {
    fail(ErrorCode::kProtocol, "a rendezvous message claims to have {} bytes; expected 1 to {}",
         length, kLongestFrame);
  }
  if (bytes_.size() - kLengthBytes < length) return std::nullopt;
  std::string frame = bytes_.substr(kLengthBytes, length);
  bytes_.erase(0, kLengthBytes + length);
  return frame;
}

std::optional<std::string> receive_frame(RecordStream& stream, FrameBuffer& buffer,
                                         Deadline deadline) {
  bool present = true;
  while (true) {
    if (auto frame = buffer.next()) return frame;
    if (!present) {
      fail(ErrorCode::kPeerLost, "the rendezvous server closed the connection");
    }
    if (!wait_for_fd(stream.fd(), POLLIN, deadline)) return std::nullopt;
    present = buffer.fill_from(stream);
  }
}

void OutQueue::push(std::shared_ptr<const std::string> bytes) {
  if (!bytes->empty()) parts_.push_back(std::move(bytes));
}

bool OutQueue::flush_to(RecordStream& stream) {
  while (!parts_.empty()) {
    const std::string& part = *parts_.front();
    const auto rest = std::as_bytes(std::span(part)).subspan(sent_of_first_);
    const auto accepted = stream.write({&rest, 1});
    if (!accepted) return false;
    sent_of_first_ += *accepted;
    if (sent_of_first_ < part.size()) return true;
    parts_.pop_front();
    sent_of_first_ = 0;
  }
  return true;
}

}  // namespace lockstep::rendezvous
