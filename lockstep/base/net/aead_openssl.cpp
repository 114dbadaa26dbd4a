#include <openssl/evp.h>

#include <limits>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/net/aead_cipher.h"

namespace lockstep {
namespace {

unsigned char* octets(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* octets(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

void require(int result, std::string_view what) {
  if (result != 1) fail(ErrorCode::kSystem, "OpenSSL cannot {} with AES-256-GCM", what);
}

class OpensslCipher final : public AeadCipher {
 public:
  OpensslCipher(const AeadKey& key, Aead::Use use) : context_(::EVP_CIPHER_CTX_new()) {
    if (context_ == nullptr) fail(ErrorCode::kSystem, "OpenSSL has no memory for a cipher");
    require(::EVP_CipherInit_ex(context_.get(), ::EVP_aes_256_gcm(), nullptr, octets(key.data()),
                                nullptr, use == Aead::Use::kSeal ? 1 : 0),
            "take a key");
  }

  void begin(std::uint64_t number, std::span<const std::byte> header) override {
    require(::EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr,
                                aead_nonce(number).data(), -1),
            "take a nonce");
    if (header.empty()) return;
    int moved = 0;
    require(::EVP_CipherUpdate(context_.get(), nullptr, &moved, octets(header.data()),
                               static_cast<int>(header.size())),
            "take a header");
  }

  void pass(std::span<const std::byte> from, std::byte* to) override {
    if (from.empty()) return;
    if (from.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
      fail(ErrorCode::kInvalidArgument, "{} bytes are too many for one message", from.size());
    }
    int moved = 0;
    require(::EVP_CipherUpdate(context_.get(), octets(to), &moved, octets(from.data()),
                               static_cast<int>(from.size())),
            "work");
  }

  void end(AeadTag tag) override {
    require(finish(), "end a message");
    require(::EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kAeadTagBytes, tag.data()),
            "make a tag");
  }

  bool matches(std::span<const std::byte, kAeadTagBytes> tag) override {
    require(::EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kAeadTagBytes,
                                  const_cast<std::byte*>(tag.data())),
            "take a tag");
    return finish() == 1;
  }

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { ::EVP_CIPHER_CTX_free(context); }
  };

  int finish() {
    int moved = 0;
    unsigned char none[kAeadTagBytes];
    return ::EVP_CipherFinal_ex(context_.get(), none, &moved);
  }

  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
};

}  // namespace

std::unique_ptr<AeadCipher> make_openssl_cipher(const AeadKey& key, Aead::Use use) {
  return std::make_unique<OpensslCipher>(key, use);
}

}  // namespace lockstep
