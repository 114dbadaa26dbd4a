#include "lockstep/base/net/aead.h"

#include <openssl/evp.h>

#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/net/hmac.h"

namespace lockstep {
namespace {

EVP_CIPHER_CTX* cipher(void* context) { return static_cast<EVP_CIPHER_CTX*>(context); }

unsigned char* octets(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* octets(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

void require(int result, std::string_view what) {
  if (result != 1) fail(ErrorCode::kSystem, "OpenSSL cannot {} with AES-256-GCM", what);
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

void Aead::Free::operator()(void* context) const { ::EVP_CIPHER_CTX_free(cipher(context)); }

Aead::Aead(const AeadKey& key, Use use) : context_(::EVP_CIPHER_CTX_new()), use_(use) {
  if (context_ == nullptr) fail(ErrorCode::kSystem, "OpenSSL has no memory for a cipher");
  require(::EVP_CipherInit_ex(cipher(context_.get()), ::EVP_aes_256_gcm(), nullptr,
                              octets(key.data()), nullptr, use == Use::kSeal ? 1 : 0),
          "take a key");
}

Aead::~Aead() = default;
Aead::Aead(Aead&&) noexcept = default;
Aead& Aead::operator=(Aead&&) noexcept = default;

void Aead::begin(std::uint64_t number, std::span<const std::byte> header) {
  constexpr std::size_t kNonceBytes = 12;
  std::array<unsigned char, kNonceBytes> nonce{};
  for (std::size_t i = 0; i < sizeof number; ++i) {
    nonce[kNonceBytes - 1 - i] = static_cast<unsigned char>(number >> (8 * i));
  }
  require(::EVP_CipherInit_ex(cipher(context_.get()), nullptr, nullptr, nullptr, nonce.data(), -1),
          "take a nonce");
  if (header.empty()) return;
  int moved = 0;
  require(::EVP_CipherUpdate(cipher(context_.get()), nullptr, &moved, octets(header.data()),
                             static_cast<int>(header.size())),
          "take a header");
}

void Aead::pass(std::span<const std::byte> from, std::byte* to) {
  if (from.empty()) return;
  if (from.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    fail(ErrorCode::kInvalidArgument, "{} bytes are too many for one message", from.size());
  }
  int moved = 0;
  require(::EVP_CipherUpdate(cipher(context_.get()), octets(to), &moved, octets(from.data()),
                             static_cast<int>(from.size())),
          "work");
}

void Aead::seal(std::uint64_t number, std::span<const std::byte> header,
                std::span<const std::span<const std::byte>> parts, std::byte* sealed, AeadTag tag) {
  begin(number, header);
  for (const auto part : parts) {
    pass(part, sealed);
    sealed += part.size();
  }
  int moved = 0;
  require(::EVP_CipherFinal_ex(cipher(context_.get()), octets(sealed), &moved), "end a message");
  require(::EVP_CIPHER_CTX_ctrl(cipher(context_.get()), EVP_CTRL_AEAD_GET_TAG, kAeadTagBytes,
                                tag.data()),
          "make a tag");
}

bool Aead::open(std::uint64_t number, std::span<const std::byte> header,
                std::span<const std::byte> sealed, std::span<const std::byte, kAeadTagBytes> tag,
                std::byte* opened) {
  begin(number, header);
  pass(sealed, opened);
  require(::EVP_CIPHER_CTX_ctrl(cipher(context_.get()), EVP_CTRL_AEAD_SET_TAG, kAeadTagBytes,
                                const_cast<std::byte*>(tag.data())),
          "take a tag");
  int moved = 0;
  unsigned char none[kAeadTagBytes];
  return ::EVP_CipherFinal_ex(cipher(context_.get()), none, &moved) == 1;
}

}  // namespace lockstep
