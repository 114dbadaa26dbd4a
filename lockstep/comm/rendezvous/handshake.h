// How two ends of a fresh connection prove to each other that they hold the same token.
//
// The server is the end that accepted. Three messages of fixed size, so that nothing a stranger
// sends is ever taken for a length:
//
//   server -> client   challenge  8 bytes "lockstp1", 32 bytes server nonce
//   client -> server   answer     32 bytes client nonce, 32 bytes MAC of the client
//   server -> client   verdict    32 bytes MAC of the server, or 32 zeros: refused
//
//   MAC = HMAC-SHA256(token, role, both nonces, context)
//
// Both nonces are fresh and stand in both MACs, so an old proof fits no new connection; the role
// stands in them, so a proof cannot be sent back to its maker; the context (what the connection is
// for: purpose, job, ranks) stands in them, so a proof for one purpose is none for another. The
// server says nothing about the token before the client has proved that it has it.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/net/hmac.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/rendezvous/token.h"

namespace lockstep {

inline constexpr std::size_t kLongestContext = 64;

// Blocking, on a connected socket. A peer with another token or context, or one that speaks another
// protocol, is Error(kUnauthorized); one that leaves is Error(kPeerLost), and one that is silent
// Error(kTimeout).
void prove_to_server(int fd, const Token& token, std::string_view context, Deadline deadline);
void prove_to_client(int fd, const Token& token, std::string_view context, Deadline deadline);

// A connection that `connect` makes, with the token proved. A server that strangers flood may take
// one of us for one of them and leave before the proof: then, until the deadline, another
// connection is made. What `connect` throws is thrown.
UniqueFd connect_and_prove(const std::function<UniqueFd()>& connect, const Token& token,
                           std::string_view context, Deadline deadline);

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kMagicBytes = 8;
using Challenge = std::array<std::byte, kMagicBytes + kNonceBytes>;
using Answer = std::array<std::byte, kNonceBytes + sizeof(Mac)>;
using Verdict = Mac;
inline constexpr Verdict kRefused{};

// The server's side without the I/O, for servers that serve many at once.
class ServerHandshake {
 public:
  ServerHandshake(const Token& token, std::string_view context);

  const Challenge& challenge() const { return challenge_; }

  // What to send back; nothing when the answer proves nothing.
  std::optional<Verdict> judge(const Answer& answer) const;

 private:
  Token token_;
  std::string context_;
  Challenge challenge_;
};

}  // namespace lockstep
