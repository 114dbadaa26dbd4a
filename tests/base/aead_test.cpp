#include "lockstep/base/net/aead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/net/aead_cipher.h"
#include "lockstep/base/text/hex.h"

namespace lockstep {
namespace {

std::vector<std::byte> from(std::string_view hex) { return *from_hex(hex); }

struct Sealed {
  std::vector<std::byte> content;
  std::array<std::byte, kAeadTagBytes> tag;
};

Sealed seal(const AeadKey& key, std::uint64_t number, std::span<const std::byte> header,
            std::span<const std::span<const std::byte>> parts) {
  Sealed sealed{};
  for (const auto part : parts) sealed.content.resize(sealed.content.size() + part.size());
  Aead(key, Aead::Use::kSeal).seal(number, header, parts, sealed.content.data(), sealed.tag);
  return sealed;
}

// RFC 5869, test case 1.
TEST(Aead, DerivesKeysAsHkdfDoes) {
  const std::vector<std::byte> secret(22, std::byte{0x0b});
  const auto salt = from("000102030405060708090a0b0c");
  const auto info = from("f0f1f2f3f4f5f6f7f8f9");
  const AeadKey key =
      derive_key(secret, salt, {reinterpret_cast<const char*>(info.data()), info.size()});
  EXPECT_EQ(to_hex(key), "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

// Test cases 13 and 14 of the specification of GCM: key and nonce are zeros.
TEST(Aead, IsAes256Gcm) {
  const Sealed empty = seal({}, 0, {}, {});
  EXPECT_EQ(to_hex(empty.tag), "530f8afbc74536b9a963b4f1c4cb738b");
  const std::vector<std::byte> zeros(16);
  const std::span<const std::byte> part = zeros;
  const Sealed sealed = seal({}, 0, {}, {&part, 1});
  EXPECT_EQ(to_hex(sealed.content), "cea7403d4d606b6e074ec5d3baf39d18");
  EXPECT_EQ(to_hex(sealed.tag), "d0d1c8a799996bf0265b98b5d48ab919");
}

TEST(Aead, OpensWhatWasSealedInPartsAndNothingElse) {
  AeadKey key;
  std::ranges::fill(key, std::byte{7});
  std::vector<std::byte> text(1000);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::byte>(i * 31);
  const std::vector<std::byte> header(16, std::byte{3});
  const std::span<const std::byte> parts[] = {
      std::span(text).first(10), {}, std::span(text).subspan(10)};
  const Sealed sealed = seal(key, 5, header, parts);
  Aead opener(key, Aead::Use::kOpen);
  std::vector<std::byte> opened(text.size());
  EXPECT_TRUE(opener.open(5, header, sealed.content, sealed.tag, opened.data()));
  EXPECT_EQ(opened, text);
  EXPECT_FALSE(opener.open(6, header, sealed.content, sealed.tag, opened.data()));
  EXPECT_FALSE(
      opener.open(5 + (std::uint64_t{1} << 32), header, sealed.content, sealed.tag, opened.data()));
  EXPECT_FALSE(
      opener.open(5, header, std::span(sealed.content).first(999), sealed.tag, opened.data()));
  for (std::size_t i = 0; i < text.size(); i += 37) {
    Sealed changed = sealed;
    changed.content[i] ^= std::byte{16};
    EXPECT_FALSE(opener.open(5, header, changed.content, changed.tag, opened.data()));
  }
  for (std::size_t i = 0; i < 16; ++i) {
    Sealed changed = sealed;
    changed.tag[i] ^= std::byte{1};
    EXPECT_FALSE(opener.open(5, header, changed.content, changed.tag, opened.data()));
    std::vector<std::byte> other = header;
    other[i] ^= std::byte{128};
    EXPECT_FALSE(opener.open(5, other, sealed.content, sealed.tag, opened.data()));
  }
  key[31] ^= std::byte{1};
  EXPECT_FALSE(
      Aead(key, Aead::Use::kOpen).open(5, header, sealed.content, sealed.tag, opened.data()));
  EXPECT_TRUE(opener.open(5, header, sealed.content, sealed.tag, opened.data()))
      << "an opener works on after a message that did not open";
}

// What one library seals in pieces of these lengths; the tag is at the end.
std::vector<std::byte> sealed_by(AeadCipher& cipher, std::uint64_t number,
                                 std::span<const std::byte> header, std::span<const std::byte> text,
                                 std::size_t piece) {
  std::vector<std::byte> sealed(text.size() + kAeadTagBytes);
  cipher.begin(number, header);
  for (std::size_t at = 0; at < text.size(); at += piece) {
    cipher.pass(text.subspan(at, std::min(piece, text.size() - at)), sealed.data() + at);
  }
  cipher.end(std::span(sealed).last<kAeadTagBytes>());
  return sealed;
}

TEST(AeadCipher, OfEveryLibraryMakesTheSameBytes) {
  AeadKey key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i * 17 + 1);
  const auto fast = make_ipsec_mb_cipher(key, Aead::Use::kSeal);
  const auto fast_open = make_ipsec_mb_cipher(key, Aead::Use::kOpen);
  if (fast == nullptr) GTEST_SKIP() << "intel-ipsec-mb is not installed, or this CPU has no VAES";
  const auto plain = make_openssl_cipher(key, Aead::Use::kSeal);
  const auto plain_open = make_openssl_cipher(key, Aead::Use::kOpen);
  for (const std::size_t bytes : {0, 1, 15, 16, 17, 255, 256, 1000, 4096, 16384, 70001}) {
    for (const std::size_t header_bytes : {0, 16, 33}) {
      std::vector<std::byte> text(bytes);
      for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<std::byte>(i * 7 + bytes);
      const std::vector<std::byte> header(header_bytes, std::byte{9});
      const std::uint64_t number = bytes * 1000003 + header_bytes;
      for (const std::size_t piece : {std::size_t{7}, std::size_t{160}, bytes + 1}) {
        SCOPED_TRACE(::testing::Message() << bytes << " bytes by " << piece);
        const auto sealed = sealed_by(*fast, number, header, text, piece);
        EXPECT_EQ(sealed, sealed_by(*plain, number, header, text, bytes + 1));
        for (AeadCipher* cipher : {fast_open.get(), plain_open.get()}) {
          std::vector<std::byte> opened(sealed.begin(), sealed.end() - kAeadTagBytes);
          cipher->begin(number, header);
          cipher->pass(opened, opened.data());
          EXPECT_TRUE(cipher->matches(std::span(sealed).last<kAeadTagBytes>()));
          EXPECT_EQ(opened, text);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
