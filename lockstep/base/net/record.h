// Records: how a byte stream travels over a TCP connection so that no change of it goes unnoticed.
//
// The sender cuts the stream into records of at most kLongestRecord bytes:
//
//   checksum    | header, 16 bytes | content            |
//   encryption  | header, 16 bytes | content, encrypted | tag, 16 bytes |
//
//   header      length   4 bytes   of the content; never 0
//               content  4 bytes   CRC-32C of the content (0 in an encrypted record)
//               number   4 bytes   of the record on this connection, from 0, without its upper half
//               header   4 bytes   CRC-32C of the 12 bytes before
//
// The receiver checks the header before it uses the length, and the content before the record's
// last byte is delivered. The tag of an encrypted record (AES-256-GCM) covers header, content and
// the whole number; each direction of each connection has its own key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/net/aead.h"

namespace lockstep {

// Long enough that its system calls are nothing against it, short enough to stay in the L2 cache
// while it is checked and then copied or reduced. Encrypted records are shorter: a cipher is slower
// than a copy, so the receiver shall begin early, and it is fastest in the L1 cache.
inline constexpr std::size_t kLongestRecord = std::size_t{256} << 10;
inline constexpr std::size_t kLongestSealed = std::size_t{16} << 10;

// How the records of one connection are protected.
struct Protection {
  bool encrypted = false;
  AeadKey to_peer{};  // keys, if encrypted
  AeadKey from_peer{};
};

struct RecordHeader {
  std::uint32_t length = 0;
  std::uint32_t content = 0;
  std::uint32_t number = 0;
  std::uint32_t header = 0;

  // Sets `header`.
  void seal();
  // Throws Error(kCorrupted) unless this is the header of record `expected`.
  void check(std::uint64_t expected) const;

  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
};
static_assert(sizeof(RecordHeader) == 16);

}  // namespace lockstep
