#include "lockstep/base/net/hmac.h"

#include <gtest/gtest.h>

#include <string_view>

#include "lockstep/base/text/hex.h"

namespace lockstep {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// RFC 4231, test cases 2 and 6.
TEST(Hmac, MatchesTheStandardsExamples) {
  EXPECT_EQ(to_hex(hmac_sha256(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  const std::vector<std::byte> long_key(131, std::byte{0xaa});
  EXPECT_EQ(to_hex(hmac_sha256(long_key,
                               bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, ComparesWholeMacs) {
  Mac a = hmac_sha256(bytes_of("k"), bytes_of("m"));
  Mac b = a;
  EXPECT_TRUE(equal_in_constant_time(a, b));
  b.back() ^= std::byte{1};
  EXPECT_FALSE(equal_in_constant_time(a, b));
  EXPECT_FALSE(equal_in_constant_time(a, std::span(a).first(31)));
}

TEST(Hmac, RandomBytesDiffer) {
  Mac a{};
  Mac b{};
  fill_random(a);
  fill_random(b);
  EXPECT_NE(a, b);
}

TEST(Hex, ReadsWhatItWrites) {
  const std::vector<std::byte> bytes{std::byte{0}, std::byte{0x7f}, std::byte{0xff}};
  EXPECT_EQ(to_hex(bytes), "007fff");
  EXPECT_EQ(from_hex("007fFF"), bytes);
  EXPECT_EQ(from_hex(""), std::vector<std::byte>{});
  EXPECT_EQ(from_hex("0"), std::nullopt);
  EXPECT_EQ(from_hex("0g"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
