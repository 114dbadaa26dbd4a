#include "lockstep/base/net/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep {

Mac hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  Mac mac;
  unsigned int length = 0;
  const auto* done = ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                            reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                            reinterpret_cast<unsigned char*>(mac.data()), &length);
  if (done == nullptr || length != mac.size()) {
    fail(ErrorCode::kSystem, "OpenSSL cannot compute HMAC-SHA256");
  }
  return mac;
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      fail_errno("cannot get random bytes from the kernel", errno);
    }
  }
}

}  // namespace lockstep
