// Writes records (record.h) to a socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/net/record.h"

namespace lockstep {

// Used by one thread at a time. Never blocks.
class RecordWriter {
 public:
  explicit RecordWriter(const Protection& protection);

  // Writes the parts as one stream; returns how many bytes were accepted, nothing if the peer is
  // gone. Bytes that were not accepted must come again, unchanged, with the next call: they may
  // belong to a record that has begun.
  std::optional<std::size_t> write(int socket, std::span<const std::span<const std::byte>> parts);

  // Whether a record has begun and its end was not accepted.
  bool is_inside_record() const { return left_ > 0; }
  // Why the peer is gone.
  const std::string& loss() const { return loss_; }

 private:
  // Begins the next record with the first bytes of these parts; the next records, if encrypted.
  void begin(std::span<const std::span<const std::byte>> parts);
  void begin_sealed(std::span<const std::span<const std::byte>> parts);
  bool send(int socket, std::span<const std::span<const std::byte>> parts, std::size_t& accepted);

  std::optional<Aead> aead_;
  std::uint64_t number_ = 0;  // of the next record
  RecordHeader header_;
  std::size_t left_ = 0;           // content of what has begun that was not accepted
  std::size_t framing_left_ = 0;   // of header_ (checksum) or sealed_ (encryption)
  std::vector<std::byte> sealed_;  // encrypted records as they travel
  std::size_t sealed_bytes_ = 0;
  std::vector<std::span<const std::byte>> content_;
  std::string loss_;
};

}  // namespace lockstep
