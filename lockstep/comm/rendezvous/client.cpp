#include "lockstep/comm/rendezvous/client.h"

#include <algorithm>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/base/text/text.h"
#include "lockstep/comm/rendezvous/handshake.h"
#include "lockstep/comm/rendezvous/rendezvous.h"

namespace lockstep {
namespace rendezvous {
namespace {

void send_frame(RecordStream& stream, const std::string& frame, Deadline deadline) {
  stream.send(std::as_bytes(std::span(frame)), deadline);
}

// The same error about corrupted data, with both ends.
[[noreturn]] void rethrow_corruption(const Error& error, Group group, int member) {
  if (error.code() != ErrorCode::kCorrupted) throw error;
  throw Error(ErrorCode::kCorrupted,
              fmt::format("data from the rendezvous server to {} {} is corrupted: {}; the network "
                          "or the memory of one of the machines is faulty",
                          group == Group::kRanks ? "rank" : "node", member, error.what()),
              {member});
}

[[noreturn]] void throw_refusal(FrameReader& frame, Group group, int member) {
  const auto code = static_cast<ErrorCode>(frame.number());
  const std::vector<int> members = frame.numbers();
  std::string text(frame.text());
  if (code == ErrorCode::kCorrupted) {
    text = fmt::format("{} {}: {}", group == Group::kRanks ? "rank" : "node", member, text);
  }
  throw Error(code, text, members);
}

// The moment to ask who is missing, early enough for an answer before the deadline.
Deadline asking_time(Deadline deadline) {
  constexpr std::chrono::nanoseconds kRoundTrip = std::chrono::seconds(1);
  if (deadline == kNoDeadline) return kNoDeadline;
  const auto left = std::max(deadline - std::chrono::steady_clock::now(), kRoundTrip * 0);
  return deadline - std::min(kRoundTrip, left / 2);
}

[[noreturn]] void fail_missing(const std::optional<std::vector<int>>& missing, Group group,
                               int size) {
  if (!missing || missing->empty()) {
    fail(ErrorCode::kTimeout, "the rendezvous server did not answer in time");
  }
  const std::string_view noun = group == Group::kRanks ? "rank" : "node";
  const bool one = missing->size() == 1;
  throw Error(ErrorCode::kTimeout,
              fmt::format("{}{} {} of {} did not reach the rendezvous in time; check {} output, "
                          "and whether {} started",
                          noun, one ? "" : "s", join_ranks(*missing), size, one ? "its" : "their",
                          one ? "it was" : "all were"),
              *missing);
}

}  // namespace

Client connect_to_server(const HostPort& server, const Token& token, Deadline deadline,
                         const std::stop_token& stop) {
  const auto connect = [&] {
    UniqueFd fd = connect_tcp(server, deadline, Retry::kUntilDeadline, stop);
    set_nodelay(fd.get());
    set_peer_timeout(fd.get(), kPeerTimeout);
    return fd;
  };
  ProvenSocket proven = connect_and_prove(connect, token, kContext, deadline, kPolicy, {}, stop);
  return {.stream = RecordStream(std::move(proven.socket), proven.protection), .incoming = {}};
}

std::vector<std::string> exchange_on(Client& client, Group group, std::string_view key, int member,
                                     int size, std::string_view blob, Deadline deadline) {
  RecordStream& stream = client.stream;
  send_frame(stream,
             FrameWriter(Kind::kDeposit)
                 .number(static_cast<std::uint32_t>(group))
                 .text(key)
                 .number(static_cast<std::uint32_t>(member))
                 .number(static_cast<std::uint32_t>(size))
                 .text(blob)
                 .finish(),
             deadline);
  std::vector<std::string> blobs;
  std::optional<std::vector<int>> missing;
  const Deadline asking = asking_time(deadline);
  bool asked = false;
  while (blobs.size() < static_cast<std::size_t>(size)) {
    std::optional<std::string> bytes;
    try {
      bytes = receive_frame(stream, client.incoming, asked ? deadline : asking);
    } catch (const Error& error) {
      rethrow_corruption(error, group, member);
    }
    if (!bytes && asked) fail_missing(missing, group, size);
    if (!bytes) {
      send_frame(stream, FrameWriter(Kind::kAskMissing).finish(), deadline);
      asked = true;
      continue;
    }
    FrameReader frame(*bytes);
    switch (frame.kind()) {
      case Kind::kRefused:
        throw_refusal(frame, group, member);
      case Kind::kMissing:
        missing = frame.numbers();
        break;
      case Kind::kBlob:
        if (frame.small_number() != static_cast<int>(blobs.size())) {
          fail(ErrorCode::kProtocol, "the rendezvous server sent an answer out of order");
        }
        blobs.emplace_back(frame.text());
        break;
      default:
        fail(ErrorCode::kProtocol, "the rendezvous server sent an unexpected message");
    }
  }
  return blobs;
}

}  // namespace rendezvous

std::vector<std::string> exchange(const HostPort& server, const Token& token, std::string_view key,
                                  int rank, int size, std::string_view blob, Deadline deadline,
                                  const std::stop_token& stop) {
  auto client = rendezvous::connect_to_server(server, token, deadline, stop);
  const ShutdownOnStop guard(client.stream.fd(), stop);
  try {
    return rendezvous::exchange_on(client, rendezvous::Group::kRanks, key, rank, size, blob,
                                   deadline);
  } catch (const Error&) {
    throw_if_stopped(stop);
    throw;
  }
}

}  // namespace lockstep
