// A connected socket that carries records (record.h): what is read is what was written, or an
// Error(kCorrupted).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/net/record_reader.h"
#include "lockstep/base/net/record_writer.h"
#include "lockstep/base/system/deadline.h"

namespace lockstep {

// Writes everything; errors as send_all() in socket.h. After an error nothing more can be written:
// the peer waits for the rest of a record.
void send_records(RecordWriter& writer, int socket, std::span<const std::byte> data,
                  Deadline deadline);

// One thread may write while another reads.
class RecordStream {
 public:
  RecordStream(UniqueFd socket, const Protection& protection = {});

  int fd() const { return socket_.get(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  void close() { socket_.reset(); }
  bool is_encrypted() const { return encrypted_; }

  // See RecordWriter and RecordReader.
  std::optional<std::size_t> write(std::span<const std::span<const std::byte>> parts) {
    return writer_.write(fd(), parts);
  }
  std::optional<std::size_t> read(std::span<std::byte> into) { return reader_.read(fd(), into); }
  std::optional<std::span<const std::byte>> peek() { return reader_.peek(fd()); }
  void consume(std::size_t bytes) { reader_.consume(bytes); }

  // Why write(), or read() and peek(), returned nothing.
  const std::string& write_loss() const { return writer_.loss(); }
  const std::string& read_loss() const { return reader_.loss(); }

  void send(std::span<const std::byte> data, Deadline deadline) {
    send_records(writer_, fd(), data, deadline);
  }

 private:
  UniqueFd socket_;
  bool encrypted_;
  RecordWriter writer_;
  RecordReader reader_;
};

}  // namespace lockstep
