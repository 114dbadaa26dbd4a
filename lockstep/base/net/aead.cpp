#include "lockstep/base/net/aead.h"

#include <string>

#include "lockstep/base/net/aead_cipher.h"
#include "lockstep/base/net/hmac.h"

namespace lockstep {
namespace {

std::unique_ptr<AeadCipher> make_cipher(const AeadKey& key, Aead::Use use) {
  if (auto cipher = make_ipsec_mb_cipher(key, use)) return cipher;
  return make_openssl_cipher(key, use);
}

}  // namespace

AeadKey derive_key(std::span<const std::byte> secret, std::span<const std::byte> salt,
                   std::string_view info) {
  const Mac extracted = hmac_sha256(salt, secret);
  std::string block(info);
  block += '\1';  // the first block; a key needs no second
  static_assert(sizeof(Mac) == kAeadKeyBytes);
  return hmac_sha256(extracted, std::as_bytes(std::span(block)));
}

Aead::Aead(const AeadKey& key, Use use) : cipher_(make_cipher(key, use)) {}

Aead::~Aead() = default;
Aead::Aead(Aead&&) noexcept = default;
Aead& Aead::operator=(Aead&&) noexcept = default;

void Aead::seal(std::uint64_t number, std::span<const std::byte> header,
                std::span<const std::span<const std::byte>> parts, std::byte* sealed, AeadTag tag) {
  cipher_->begin(number, header);
  for (const auto part : parts) {
    cipher_->pass(part, sealed);
    sealed += part.size();
  }
  cipher_->end(tag);
}

bool Aead::open(std::uint64_t number, std::span<const std::byte> header,
                std::span<const std::byte> sealed, std::span<const std::byte, kAeadTagBytes> tag,
                std::byte* opened) {
  cipher_->begin(number, header);
  cipher_->pass(sealed, opened);
  return cipher_->matches(tag);
}

std::string_view aead_library() {
  const bool has_vectors = make_ipsec_mb_cipher({}, Aead::Use::kSeal) != nullptr;
  return has_vectors ? "Intel's multi-buffer library" : "OpenSSL";
}

}  // namespace lockstep
