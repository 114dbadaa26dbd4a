#include "lockstep/base/simd/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

using Sum = std::uint32_t (*)(std::span<const std::byte>, std::uint32_t);
constexpr Sum kImplementations[] = {crc32c, crc32c_by_tables};

// Bit by bit, as the polynomial is defined.
std::uint32_t bitwise_sum(std::span<const std::byte> data) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const std::byte byte : data) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 draw(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(draw());
  return bytes;
}

TEST(Crc32c, HasTheSumsOfRfc3720) {
  std::vector<std::byte> zeros(32);
  std::vector<std::byte> ones(32, std::byte{0xff});
  std::vector<std::byte> up(32);
  for (std::size_t i = 0; i < up.size(); ++i) up[i] = static_cast<std::byte>(i);
  std::vector<std::byte> down(up.rbegin(), up.rend());
  const std::string_view digits = "123456789";
  for (const Sum sum : kImplementations) {
    EXPECT_EQ(sum({}, 0), 0u);
    EXPECT_EQ(sum(zeros, 0), 0x8a9136aau);
    EXPECT_EQ(sum(ones, 0), 0x62a8ab43u);
    EXPECT_EQ(sum(up, 0), 0x46dd794eu);
    EXPECT_EQ(sum(down, 0), 0x113fdb5cu);
    EXPECT_EQ(sum(std::as_bytes(std::span(digits)), 0), 0xe3069283u);
  }
}

TEST(Crc32c, AgreesWithTheDefinitionAtEverySizeAndAlignment) {
  const std::vector<std::byte> bytes = random_bytes(140'000, 1);
  std::mt19937 draw(2);
  std::vector<std::size_t> sizes(800);
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = i;
  // Around the lengths at which another loop takes over.
  for (const std::size_t edge : {768u, 4080u, 12'288u, 32'640u, 65'280u, 65'536u, 131'072u}) {
    for (std::size_t off = 0; off < 18; ++off) sizes.push_back(edge - 9 + off);
  }
  for (const std::size_t size : sizes) {
    const std::span<const std::byte> data(bytes.data() + draw() % 64, size);
    const std::uint32_t expected = bitwise_sum(data);
    const std::size_t cut = size == 0 ? 0 : draw() % (size + 1);
    for (const Sum sum : kImplementations) {
      EXPECT_EQ(sum(data, 0), expected) << size;
      EXPECT_EQ(sum(data.subspan(cut), sum(data.first(cut), 0)), expected)
          << size << " cut at " << cut;
    }
  }
}

TEST(Crc32c, SeesEveryFlippedBit) {
  std::vector<std::byte> bytes = random_bytes(5000, 3);
  const std::uint32_t sum = crc32c(bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::byte bit{static_cast<unsigned char>(1U << (i % 8))};
    bytes[i] ^= bit;
    EXPECT_NE(crc32c(bytes), sum) << i;
    bytes[i] ^= bit;
  }
}

}  // namespace
}  // namespace lockstep
