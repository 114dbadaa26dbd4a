// Reads records (record.h) from a socket and checks them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/net/record.h"

namespace lockstep {

// Used by one thread at a time. Never blocks. Throws Error(kCorrupted) for a record that is not as
// it was sent. The end of the stream is one after a whole record or a loss inside one; only the
// protocol above knows whether it was expected.
class RecordReader {
 public:
  explicit RecordReader(const Protection& protection);

  // Copies what has arrived; 0: nothing more has; nothing: the stream has ended. A long content
  // goes straight to `into` and is checked when its last byte has come; no call returns that byte
  // before.
  std::optional<std::size_t> read(int socket, std::span<std::byte> into);

  // Content that was checked, in place; empty: none has arrived; nothing: the stream has ended.
  // consume() frees its first bytes.
  std::optional<std::span<const std::byte>> peek(int socket);
  void consume(std::size_t bytes);

  // Why the stream has ended.
  const std::string& loss() const { return loss_; }
  // Content of whole and unfinished records so far, for messages.
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  std::size_t buffered() const { return end_ - begin_; }
  std::byte* front() { return buffer_.data() + begin_; }
  // Bytes of the record that must be in the buffer to check it there.
  std::size_t needed() const { return left_ + (aead_ ? kAeadTagBytes : 0); }
  // Receives once into the buffer, with space for `needed` bytes from front() on. False: nothing
  // came.
  bool fill(int socket, std::size_t needed);
  // Bytes received, 0 if none or at the end.
  std::size_t receive(int socket, std::span<std::byte> into, std::span<std::byte> then = {});
  // Whether a record is open, after reading a header if necessary.
  bool open(int socket);
  void open_sealed(std::byte* opened);  // the record at front()
  void check_content();
  void finish_record();
  std::size_t read_straight(int socket, std::span<std::byte> into);
  std::size_t decrypt_straight(int socket, std::span<std::byte> into);
  [[noreturn]] void fail_content(std::string_view how) const;

  std::optional<Aead> aead_;
  std::uint64_t number_ = 0;  // of the next record
  RecordHeader header_;
  std::size_t left_ = 0;           // content of the open record that was not consumed
  bool checked_ = false;           // the rest of the content is in the buffer and was checked
  std::uint32_t sum_ = 0;          // of the content that went straight to its target
  std::vector<std::byte> buffer_;  // bytes [begin_, end_) were received and not consumed
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t bytes_read_ = 0;
  bool ended_ = false;
  std::string loss_;
};

}  // namespace lockstep
