// A Channel over one connected stream socket.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/comm/transport/channel.h"

namespace lockstep::transport {

class TcpChannel : public Channel {
 public:
  // `peer` is the rank of the other end, for errors.
  TcpChannel(UniqueFd socket, int peer);

  std::size_t write(std::span<const std::span<const std::byte>> parts) override;
  std::size_t read(std::span<std::byte> into) override;
  std::span<const std::byte> peek() override;
  void consume(std::size_t bytes) override;
  int fd() const override { return socket_.get(); }

 private:
  std::size_t receive(std::span<std::byte> into);
  [[noreturn]] void fail_lost(std::string_view how) const;

  UniqueFd socket_;
  int peer_;
  std::vector<std::byte> buffer_;  // bytes [begin_, end_) were received and not consumed
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace lockstep::transport
