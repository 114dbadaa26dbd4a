// AES-256-GCM of one library: what an Aead (aead.h) computes with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/base/net/aead.h"

namespace lockstep {

inline constexpr std::size_t kAeadNonceBytes = 12;

// The number of a message, as 12 bytes with the highest first.
inline std::array<unsigned char, kAeadNonceBytes> aead_nonce(std::uint64_t number) {
  std::array<unsigned char, kAeadNonceBytes> nonce{};
  for (std::size_t i = 0; i < sizeof number; ++i) {
    nonce[kAeadNonceBytes - 1 - i] = static_cast<unsigned char>(number >> (8 * i));
  }
  return nonce;
}

// One key, which seals or opens. A message is begin(), then pass() for each of its parts, then
// end() where it is sealed and matches() where it is opened.
class AeadCipher {
 public:
  virtual ~AeadCipher() = default;

  virtual void begin(std::uint64_t number, std::span<const std::byte> header) = 0;
  virtual void pass(std::span<const std::byte> from, std::byte* to) = 0;
  virtual void end(AeadTag tag) = 0;
  // Whether `tag` is that of the message.
  [[nodiscard]] virtual bool matches(std::span<const std::byte, kAeadTagBytes> tag) = 0;
};

std::unique_ptr<AeadCipher> make_openssl_cipher(const AeadKey& key, Aead::Use use);

// Intel's multi-buffer library, which multiplies and encrypts whole vectors of AVX-512. Null where
// it is not installed, this CPU has no such instructions, or LOCKSTEP_IPSEC_MB=0 turns it off.
std::unique_ptr<AeadCipher> make_ipsec_mb_cipher(const AeadKey& key, Aead::Use use);

}  // namespace lockstep
