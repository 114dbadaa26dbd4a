#include "lockstep/comm/rendezvous/handshake.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "lockstp2";
static_assert(kMagic.size() == kMagicBytes);
constexpr char kServerRole = 'S';
constexpr char kClientRole = 'C';

using Wish = std::array<std::byte, kWishBytes>;

Wish wish_of(bool wants_encryption) { return {std::byte{wants_encryption}}; }

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What both ends have said, and what they know.
struct Transcript {
  std::span<const std::byte, kNonceBytes> server_nonce;
  std::span<const std::byte, kWishBytes> server_wish;
  std::span<const std::byte, kNonceBytes> client_nonce;
  std::span<const std::byte, kWishBytes> client_wish;
  std::string_view context;
  std::span<const std::byte> greeting;

  Transcript(const Challenge& challenge, const Answer& answer, std::string_view about,
             std::span<const std::byte> greets)
      : server_nonce(std::span(challenge).subspan<kMagicBytes + kWishBytes>()),
        server_wish(std::span(challenge).subspan<kMagicBytes, kWishBytes>()),
        client_nonce(std::span(answer).first<kNonceBytes>()),
        client_wish(std::span(answer).subspan<kNonceBytes, kWishBytes>()),
        context(about),
        greeting(greets) {}

  // The length of the context is part of it, so different parts never make the same message.
  Mac proof(const Token& token, char role) const {
    std::string message(kMagic);
    message += role;
    for (const std::span<const std::byte> part :
         {std::span<const std::byte>(server_nonce), std::span<const std::byte>(server_wish),
          std::span<const std::byte>(client_nonce), std::span<const std::byte>(client_wish)}) {
      message += as_text(part);
    }
    message += static_cast<char>(context.size());
    message += context;
    message += as_text(greeting);
    return hmac_sha256(token.bytes, std::as_bytes(std::span(message)));
  }

  // As the end with this role sees it.
  Protection protection(const Token& token, char role) const {
    Protection protection;
    protection.encrypted = std::ranges::equal(server_wish, wish_of(true)) ||
                           std::ranges::equal(client_wish, wish_of(true));
    if (!protection.encrypted) return protection;
    const std::string salt =
        std::string(as_text(server_nonce)) + std::string(as_text(client_nonce));
    const auto key = [&](char sender) {
      return derive_key(token.bytes, std::as_bytes(std::span(salt)),
                        fmt::format("lockstep 2 records of {} {}", sender, context));
    };
    const AeadKey of_server = key(kServerRole);
    const AeadKey of_client = key(kClientRole);
    protection.to_peer = role == kServerRole ? of_server : of_client;
    protection.from_peer = role == kServerRole ? of_client : of_server;
    return protection;
  }
};

std::span<const std::byte> mac_of(const Answer& answer) {
  return std::span(answer).subspan<kNonceBytes + kWishBytes>();
}

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

ServerHandshake::ServerHandshake(const Token& token, std::string_view context,
                                 bool wants_encryption)
    : token_(token), context_(context) {
  check_context(context);
  std::memcpy(challenge_.data(), kMagic.data(), kMagicBytes);
  std::ranges::copy(wish_of(wants_encryption), challenge_.begin() + kMagicBytes);
  fill_random(std::span(challenge_).subspan<kMagicBytes + kWishBytes>());
}

std::optional<Verdict> ServerHandshake::judge(const Answer& answer,
                                              std::span<const std::byte> greeting) const {
  const Transcript transcript(challenge_, answer, context_, greeting);
  const Mac expected = transcript.proof(token_, kClientRole);
  if (!equal_in_constant_time(mac_of(answer), expected)) return std::nullopt;
  return transcript.proof(token_, kServerRole);
}

Protection ServerHandshake::protection(const Answer& answer) const {
  return Transcript(challenge_, answer, context_, {}).protection(token_, kServerRole);
}

Protection prove_to_client(int fd, const Token& token, std::string_view context, Deadline deadline,
                           bool wants_encryption) {
  const ServerHandshake handshake(token, context, wants_encryption);
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
  return handshake.protection(answer);
}

Protection prove_to_server(int fd, const Token& token, std::string_view context, Deadline deadline,
                           bool wants_encryption, std::span<const std::byte> greeting) {
  check_context(context);
  const std::string peer = peer_name(fd);
  Challenge challenge;
  receive_proof(fd, challenge, peer, deadline);
  if (std::memcmp(challenge.data(), kMagic.data(), kMagicBytes) != 0) {
    fail(ErrorCode::kUnauthorized,
         "{} does not speak lockstep's protocol, version 2; another program or another version "
         "listens there",
         peer);
  }
  Answer answer;
  fill_random(std::span(answer).first<kNonceBytes>());
  std::ranges::copy(wish_of(wants_encryption), answer.begin() + kNonceBytes);
  const Transcript transcript(challenge, answer, context, greeting);
  const Mac own = transcript.proof(token, kClientRole);
  std::ranges::copy(own, answer.begin() + kNonceBytes + kWishBytes);
  std::vector<std::byte> message(answer.begin(), answer.end());
  message.insert(message.end(), greeting.begin(), greeting.end());
  send_all(fd, message, deadline);
  Verdict verdict;
  receive_proof(fd, verdict, peer, deadline);
  if (verdict == kRefused) {
    fail(ErrorCode::kUnauthorized,
         "{} refused this process: it belongs to another job or has another token (see "
         "LOCKSTEP_TOKEN)",
         peer);
  }
  const Mac expected = transcript.proof(token, kServerRole);
  if (!equal_in_constant_time(verdict, expected)) {
    fail(
        ErrorCode::kUnauthorized,
        "{} could not prove that it holds this job's token; another program may be listening there",
        peer);
  }
  return transcript.protection(token, kClientRole);
}

ProvenSocket connect_and_prove(const std::function<UniqueFd()>& connect, const Token& token,
                               std::string_view context, Deadline deadline,
                               const EncryptionPolicy& policy, std::span<const std::byte> greeting,
                               const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kPause{20};
  int refusals = 0;
  while (true) {
    throw_if_stopped(stop);
    UniqueFd socket = connect();
    try {
      const ShutdownOnStop guard(socket.get(), stop);
      const Protection protection = prove_to_server(
          socket.get(), token, context, deadline, policy.wants_encryption(socket.get()), greeting);
      return {std::move(socket), protection};
    } catch (const Error& error) {
      constexpr int kMostRefusals = 3;
      const bool refused = error.code() == ErrorCode::kUnauthorized && ++refusals < kMostRefusals;
      if ((!refused && error.code() != ErrorCode::kPeerLost) || has_passed(deadline)) throw;
    }
    ::poll(nullptr, 0, poll_milliseconds(std::min(deadline, deadline_in(kPause))));
  }
}

}  // namespace lockstep
