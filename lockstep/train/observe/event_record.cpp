#include "lockstep/train/observe/event_record.h"

#include <bit>

#include "lockstep/base/file/crc32c.h"

namespace lockstep::train {
namespace {

// Ways in which a protocol buffer writes a field.
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class Unsigned>
void put_fixed(std::string& to, Unsigned value) {
  for (std::size_t byte = 0; byte < sizeof(Unsigned); ++byte) {
    to += static_cast<char>(static_cast<std::uint8_t>(value >> (8 * byte)));
  }
}

// Seven bits a byte, the lowest first; the eighth says that more follow.
void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    to += static_cast<char>(static_cast<std::uint8_t>(value | 0x80));
  to += static_cast<char>(value);
}

void put_key(std::string& to, std::uint32_t field, Wire wire) {
  put_varint(to, field << 3 | static_cast<std::uint32_t>(wire));
}

void put_bytes(std::string& to, std::uint32_t field, std::string_view bytes) {
  put_key(to, field, Wire::kBytes);
  put_varint(to, bytes.size());
  to += bytes;
}

std::string event_of(double time) {
  std::string event;
  put_key(event, 1, Wire::kFixed64);
  put_fixed(event, std::bit_cast<std::uint64_t>(time));
  return event;
}

std::string event_of(double time, std::int64_t step) {
  std::string event = event_of(time);
  put_key(event, 2, Wire::kVarint);
  put_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

// Masks the checksum, so that a checksum of bytes that contain a checksum stays meaningful.
std::uint32_t masked_checksum(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8;
}

std::string framed(std::string_view event) {
  std::string record;
  put_fixed(record, static_cast<std::uint64_t>(event.size()));
  put_fixed(record, masked_checksum(record));
  record += event;
  put_fixed(record, masked_checksum(event));
  return record;
}

}  // namespace

std::string version_record(double time) {
  std::string event = event_of(time);
  put_bytes(event, 3, "brain.Event:2");
  return framed(event);
}

std::string restart_record(double time, std::int64_t step) {
  constexpr std::uint64_t kStart = 1;
  std::string session;
  put_key(session, 1, Wire::kVarint);
  put_varint(session, kStart);
  std::string event = event_of(time, step);
  put_bytes(event, 7, session);
  return framed(event);
}

std::string scalars_record(double time, std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_key(value, 2, Wire::kFixed32);
    put_fixed(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    put_bytes(summary, 1, value);
  }
  std::string event = event_of(time, step);
  put_bytes(event, 5, summary);
  return framed(event);
}

}  // namespace lockstep::train
