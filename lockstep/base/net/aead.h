// Encryption that also detects every change: AES-256-GCM, and keys derived by HKDF-SHA256
// (RFC 5869).
//
// A key encrypts each number at most once: the caller counts its messages, and the number of a
// message is its nonce. So a message that is repeated, left out or moved to another place of the
// stream does not open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace lockstep {

inline constexpr std::size_t kAeadKeyBytes = 32;
inline constexpr std::size_t kAeadTagBytes = 16;
using AeadKey = std::array<std::byte, kAeadKeyBytes>;
using AeadTag = std::span<std::byte, kAeadTagBytes>;

// The first key of HKDF: extract with `salt`, then expand with `info`.
AeadKey derive_key(std::span<const std::byte> secret, std::span<const std::byte> salt,
                   std::string_view info);

class AeadCipher;

// One direction of a connection, with one key. Used by one thread at a time.
class Aead {
 public:
  enum class Use { kSeal, kOpen };
  Aead(const AeadKey& key, Use use);
  ~Aead();
  Aead(Aead&&) noexcept;
  Aead& operator=(Aead&&) noexcept;

  // Encrypts the parts, one after another, to `sealed`, which is as long as they are together;
  // `tag` covers them and `header`, which stays readable.
  void seal(std::uint64_t number, std::span<const std::byte> header,
            std::span<const std::span<const std::byte>> parts, std::byte* sealed, AeadTag tag);

  // Decrypts to `opened`, which may be `sealed` itself. False: the data, the header, the tag or the
  // number is not what was sealed; then the content of `opened` is meaningless.
  [[nodiscard]] bool open(std::uint64_t number, std::span<const std::byte> header,
                          std::span<const std::byte> sealed,
                          std::span<const std::byte, kAeadTagBytes> tag, std::byte* opened);

 private:
  std::unique_ptr<AeadCipher> cipher_;
};

// The library that new ones compute with: "OpenSSL", or "Intel's multi-buffer library" where this
// CPU can use it.
std::string_view aead_library();

}  // namespace lockstep
