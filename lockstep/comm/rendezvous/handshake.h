// The handshake in which both ends of a new connection prove that they have the same token.
//
// The server is the end that accepted. Three messages of fixed size, so that no length from an
// unknown peer is used:
//
//   server -> client   challenge  8 bytes "lockstp2", 8 bytes wish, 32 bytes server nonce
//   client -> server   answer     32 bytes client nonce, 8 bytes wish, 32 bytes MAC of the client,
//                                 then the greeting, of a size that both know
//   server -> client   verdict    32 bytes MAC of the server, or 32 zeros: refused
//
//   MAC = HMAC-SHA256(token, role, both nonces, both wishes, context, greeting)
//
// Both MACs contain both fresh nonces, so an old proof cannot be replayed; the role, so a proof
// cannot be reflected; and the context (purpose, job, ranks), so a proof is valid for one purpose
// only. The server reveals nothing about the token before the client has proved that it has it.
//
// A wish is 1 for an end that wants encryption, else 0. The connection is encrypted if one of the
// ends wants it. Because the MACs cover the wishes, nobody between the ends can talk them out of
// it. The keys are HKDF-SHA256(token, salt = both nonces, info = direction and context): fresh for
// each connection, and different in its two directions.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/net/encryption_policy.h"
#include "lockstep/base/net/hmac.h"
#include "lockstep/base/net/record.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/rendezvous/token.h"

namespace lockstep {

inline constexpr std::size_t kLongestContext = 64;

// Blocking, on a connected socket. Returns how what follows is protected. Throws
// Error(kUnauthorized) for a peer with another token, context or protocol, Error(kPeerLost) if it
// closes the connection, and Error(kTimeout) if it does not answer.
Protection prove_to_server(int fd, const Token& token, std::string_view context, Deadline deadline,
                           bool wants_encryption = false, std::span<const std::byte> greeting = {});
Protection prove_to_client(int fd, const Token& token, std::string_view context, Deadline deadline,
                           bool wants_encryption = false);

// A connection on which both ends have proved the token.
struct ProvenSocket {
  UniqueFd socket;
  Protection protection;
};

// Makes a connection with `connect` and proves the token. A server that is flooded by unknown
// clients may drop a valid one before its proof; then another connection is made, until the
// deadline. A refusal may come from bytes that changed on their way, so it is tried again twice.
// Errors of `connect` are thrown; a stop request is Error(kAborted).
ProvenSocket connect_and_prove(const std::function<UniqueFd()>& connect, const Token& token,
                               std::string_view context, Deadline deadline,
                               const EncryptionPolicy& policy,
                               std::span<const std::byte> greeting = {},
                               const std::stop_token& stop = {});

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kMagicBytes = 8;
inline constexpr std::size_t kWishBytes = 8;
using Challenge = std::array<std::byte, kMagicBytes + kWishBytes + kNonceBytes>;
using Answer = std::array<std::byte, kNonceBytes + kWishBytes + sizeof(Mac)>;
using Verdict = Mac;
inline constexpr Verdict kRefused{};

// The server's side without I/O, for servers with many clients.
class ServerHandshake {
 public:
  ServerHandshake(const Token& token, std::string_view context, bool wants_encryption = false);

  const Challenge& challenge() const { return challenge_; }

  // The verdict to send; nothing if the answer does not prove the token.
  std::optional<Verdict> judge(const Answer& answer,
                               std::span<const std::byte> greeting = {}) const;
  // How what follows is protected, after an answer that judge() has accepted.
  Protection protection(const Answer& answer) const;

 private:
  Token token_;
  std::string context_;
  Challenge challenge_;
};

}  // namespace lockstep
