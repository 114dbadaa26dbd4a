#include "lockstep/comm/rendezvous/handshake.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "lockstp1";
static_assert(kMagic.size() == kMagicBytes);

using NonceView = std::span<const std::byte, kNonceBytes>;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// All parts but the last have a fixed size, so different parts never make the same message.
Mac proof(const Token& token, char role, NonceView server_nonce, NonceView client_nonce,
          std::string_view context) {
  std::string message(kMagic);
  message += role;
  message += as_text(server_nonce);
  message += as_text(client_nonce);
  message += context;
  return hmac_sha256(token.bytes, std::as_bytes(std::span(message)));
}

constexpr char kServerRole = 'S';
constexpr char kClientRole = 'C';

void check_context(std::string_view context) {
  if (context.size() > kLongestContext) {
    fail(ErrorCode::kInvalidArgument, "a handshake's context has at most {} bytes, '{}' has {}",
         kLongestContext, context, context.size());
  }
}

// receive_all(); where the peer disconnects, the error says what that means in a handshake.
void receive_proof(int fd, std::span<std::byte> data, std::string_view peer, Deadline deadline) {
  try {
    receive_all(fd, data, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;
    fail(ErrorCode::kPeerLost, "{} left before it had proved that it holds the token", peer);
  }
}

}  // namespace

ServerHandshake::ServerHandshake(const Token& token, std::string_view context)
    : token_(token), context_(context) {
  check_context(context);
  std::memcpy(challenge_.data(), kMagic.data(), kMagicBytes);
  fill_random(std::span(challenge_).subspan<kMagicBytes>());
}

std::optional<Verdict> ServerHandshake::judge(const Answer& answer) const {
  const auto server_nonce = std::span(challenge_).subspan<kMagicBytes>();
  const auto client_nonce = std::span(answer).first<kNonceBytes>();
  const auto claimed = std::span(answer).subspan<kNonceBytes>();
  const Mac expected = proof(token_, kClientRole, server_nonce, client_nonce, context_);
  if (!equal_in_constant_time(claimed, expected)) return std::nullopt;
  return proof(token_, kServerRole, server_nonce, client_nonce, context_);
}

void prove_to_client(int fd, const Token& token, std::string_view context, Deadline deadline) {
  const ServerHandshake handshake(token, context);
  const std::string peer = peer_name(fd);
  send_all(fd, handshake.challenge(), deadline);
  Answer answer;
  receive_proof(fd, answer, peer, deadline);
  const auto verdict = handshake.judge(answer);
  if (!verdict) {
    send_all(fd, kRefused, deadline);
    fail(ErrorCode::kUnauthorized,
         "{} could not prove that it holds this job's token; it belongs to another job or has "
         "another token (see LOCKSTEP_TOKEN)",
         peer);
  }
  send_all(fd, *verdict, deadline);
}

void prove_to_server(int fd, const Token& token, std::string_view context, Deadline deadline) {
  check_context(context);
  const std::string peer = peer_name(fd);
  Challenge challenge;
  receive_proof(fd, challenge, peer, deadline);
  if (std::memcmp(challenge.data(), kMagic.data(), kMagicBytes) != 0) {
    fail(ErrorCode::kUnauthorized,
         "{} does not speak lockstep's protocol, version 1; another program or another version "
         "listens there",
         peer);
  }
  const auto server_nonce = std::span(challenge).subspan<kMagicBytes>();
  Answer answer;
  const auto client_nonce = std::span(answer).first<kNonceBytes>();
  fill_random(client_nonce);
  const Mac own = proof(token, kClientRole, server_nonce, client_nonce, context);
  std::ranges::copy(own, answer.begin() + kNonceBytes);
  send_all(fd, answer, deadline);
  Verdict verdict;
  receive_proof(fd, verdict, peer, deadline);
  if (verdict == kRefused) {
    fail(ErrorCode::kUnauthorized,
         "{} refused this process: it belongs to another job or has another token (see "
         "LOCKSTEP_TOKEN)",
         peer);
  }
  const Mac expected = proof(token, kServerRole, server_nonce, client_nonce, context);
  if (!equal_in_constant_time(verdict, expected)) {
    fail(
        ErrorCode::kUnauthorized,
        "{} could not prove that it holds this job's token; another program may be listening there",
        peer);
  }
}

UniqueFd connect_and_prove(const std::function<UniqueFd()>& connect, const Token& token,
                           std::string_view context, Deadline deadline) {
  constexpr std::chrono::milliseconds kPause{20};
  while (true) {
    UniqueFd socket = connect();
    try {
      prove_to_server(socket.get(), token, context, deadline);
      return socket;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerLost || has_passed(deadline)) throw;
    }
    ::poll(nullptr, 0, poll_milliseconds(std::min(deadline, deadline_in(kPause))));
  }
}

}  // namespace lockstep
