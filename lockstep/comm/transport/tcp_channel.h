// A Channel over one TCP connection, in records (base/net/record.h): every byte is checked, by a
// checksum or by its encryption. Throws Error(kCorrupted) for bytes that were not sent so.
#pragma once

#include <string_view>

#include "lockstep/base/net/record_stream.h"
#include "lockstep/comm/transport/channel.h"

namespace lockstep::transport {

class TcpChannel : public Channel {
 public:
  // `peer` is the rank of the other end, for errors.
  TcpChannel(UniqueFd socket, int peer, const Protection& protection = {});

  std::size_t write(std::span<const std::span<const std::byte>> parts) override;
  std::size_t read(std::span<std::byte> into) override;
  std::span<const std::byte> peek() override;
  void consume(std::size_t bytes) override;
  int fd() const override { return stream_.fd(); }

 private:
  [[noreturn]] void fail_lost(std::string_view how) const;

  RecordStream stream_;
  int peer_;
};

}  // namespace lockstep::transport
