#include "lockstep/base/net/record_stream.h"

#include <poll.h>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"

namespace lockstep {

RecordStream::RecordStream(UniqueFd socket, const Protection& protection)
    : socket_(std::move(socket)),
      encrypted_(protection.encrypted),
      writer_(protection),
      reader_(protection) {}

void send_records(RecordWriter& writer, int socket, std::span<const std::byte> data,
                  Deadline deadline) {
  if (writer.is_inside_record()) {
    fail(ErrorCode::kPeerLost, "an earlier message to {} was cut short", peer_name(socket));
  }
  while (!data.empty()) {
    const auto accepted = writer.write(socket, {&data, 1});
    if (!accepted) fail(ErrorCode::kPeerLost, "cannot send to the peer: {}", writer.loss());
    data = data.subspan(*accepted);
    if (!data.empty() && !wait_for_fd(socket, POLLOUT, deadline)) {
      fail(ErrorCode::kTimeout, "{} did not take {} more bytes in time", peer_name(socket),
           data.size());
    }
  }
}

}  // namespace lockstep
