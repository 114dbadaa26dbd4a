// The bytes that the rendezvous server and its clients exchange after the handshake, in records
// (base/net/record.h).
//
// A frame is a length of 4 bytes and that many bytes: one byte for the kind, then its fields.
// Numbers are 4 bytes, little-endian; a text is its length and its bytes.
//
//   client -> server
//     kDeposit     group, key, member, size, blob   take part in the exchange `key`
//     kAskMissing                                   who has not deposited under my key yet?
//     kTell        text                             send to every node of the job (also myself)
//   server -> client
//     kBlob        member, blob                     one for every member, in order
//     kMissing     members                          the answer to kAskMissing
//     kRefused     error code, members, sentence    the end of the exchange
//     kTold        node, text                       what a node sent with kTell
//     kLeft        node                             a node's connection has ended
//     kJoined      node, blob                       a node that had left has joined again
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/net/encryption_policy.h"
#include "lockstep/base/net/record_stream.h"
#include "lockstep/base/system/deadline.h"

namespace lockstep::rendezvous {

inline constexpr std::size_t kLongestFrame = 64 << 10;
inline constexpr std::string_view kContext = "lockstep rendezvous 3";
// Whatever comm.encrypt says: the few bytes of the rendezvous are encrypted between machines.
inline constexpr EncryptionPolicy kPolicy{};
inline constexpr std::chrono::seconds kPeerTimeout{15};  // for a machine that does not answer

enum class Kind : std::uint8_t {
  kDeposit = 1,
  kAskMissing,
  kTell,
  kBlob = 17,
  kMissing,
  kRefused,
  kTold,
  kLeft,
  kJoined,
};

// The members of an exchange: the ranks of the job, or the launchers of its nodes.
enum class Group : std::uint32_t { kRanks, kNodes };

// Builds one frame. Throws Error(kInvalidArgument) if it gets too long.
class FrameWriter {
 public:
  explicit FrameWriter(Kind kind);
  FrameWriter& number(std::uint32_t value);
  FrameWriter& text(std::string_view value);
  FrameWriter& numbers(const std::vector<int>& values);
  std::string finish();

 private:
  std::string bytes_;
};

// Reads one frame, without its length. Throws Error(kProtocol) for a malformed frame.
class FrameReader {
 public:
  explicit FrameReader(std::string_view frame);
  Kind kind() const { return kind_; }
  std::uint32_t number();
  int small_number();  // one that fits an int and is not negative
  std::string_view text();
  std::vector<int> numbers();
  void finish() const;

 private:
  std::string_view take(std::size_t count);
  Kind kind_;
  std::string_view rest_;
};

// Splits the bytes of a stream into frames.
class FrameBuffer {
 public:
  // Reads what has arrived; false if the peer has closed the connection. Throws Error(kCorrupted)
  // for bytes that were not sent so.
  bool fill_from(RecordStream& stream);
  // The next whole frame, without its length. Throws Error(kProtocol) for an invalid length.
  std::optional<std::string> next();

 private:
  std::string bytes_;
};

// Waits for the next frame; nothing at the deadline. Throws Error(kPeerLost) if the peer closes the
// connection.
std::optional<std::string> receive_frame(RecordStream& stream, FrameBuffer& buffer,
                                         Deadline deadline);

// Outgoing bytes of a stream that may be slow. Several queues can share the same bytes.
class OutQueue {
 public:
  void push(std::shared_ptr<const std::string> bytes);
  void push(std::string bytes) { push(std::make_shared<const std::string>(std::move(bytes))); }
  bool empty() const { return parts_.empty(); }
  // Writes without waiting; false if the peer has closed the connection.
  bool flush_to(RecordStream& stream);

 private:
  std::deque<std::shared_ptr<const std::string>> parts_;
  std::size_t sent_of_first_ = 0;
};

}  // namespace lockstep::rendezvous
