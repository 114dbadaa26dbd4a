#include "lockstep/base/simd/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "lockstep/base/system/cpu_features.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kCastagnoli = 0x82f63b78;  // reflected

using ByteTable = std::array<std::uint32_t, 256>;

// Table 0 advances a register by one byte; table k advances it by k more bytes that are zero.
constexpr std::array<ByteTable, 8> make_slicing_tables() {
  std::array<ByteTable, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoli : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}
constexpr std::array<ByteTable, 8> kSlicing = make_slicing_tables();

std::uint64_t load_word(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

#if defined(__x86_64__)
#define LOCKSTEP_CRC_TARGET __attribute__((target("sse4.2,pclmul")))
#define LOCKSTEP_CRC_WORD(crc, word) __builtin_ia32_crc32di(crc, word)
#define LOCKSTEP_CRC_BYTE(crc, byte) __builtin_ia32_crc32qi(static_cast<std::uint32_t>(crc), byte)
constexpr std::string_view kInstructions = "sse4.2 and pclmul";
#elif defined(__aarch64__)
#define LOCKSTEP_CRC_TARGET __attribute__((target("+crc")))
#define LOCKSTEP_CRC_WORD(crc, word) \
  __builtin_aarch64_crc32cx(static_cast<std::uint32_t>(crc), word)
#define LOCKSTEP_CRC_BYTE(crc, byte) \
  __builtin_aarch64_crc32cb(static_cast<std::uint32_t>(crc), byte)
constexpr std::string_view kInstructions = "armv8";
#endif

#if defined(LOCKSTEP_CRC_TARGET)

// A register as if `bytes` zeros had followed. The operation is linear over the bits of the
// register, so the values of the 32 single bits, xored into tables by byte, describe it.
class ZeroShift {
 public:
  explicit ZeroShift(std::size_t bytes) {
    std::array<std::uint32_t, 32> of_bit;
    for (std::size_t bit = 0; bit < 32; ++bit) {
      std::uint32_t crc = std::uint32_t{1} << bit;
      for (std::size_t i = 0; i < bytes; ++i) crc = (crc >> 8) ^ kSlicing[0][crc & 0xff];
      of_bit[bit] = crc;
    }
    for (std::size_t part = 0; part < tables_.size(); ++part) {
      for (std::size_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = 0;
        for (std::size_t bit = 0; bit < 8; ++bit) {
          if ((byte >> bit & 1) != 0) crc ^= of_bit[8 * part + bit];
        }
        tables_[part][byte] = crc;
      }
    }
  }
  std::uint32_t operator()(std::uint32_t crc) const {
    return tables_[0][crc & 0xff] ^ tables_[1][crc >> 8 & 0xff] ^ tables_[2][crc >> 16 & 0xff] ^
           tables_[3][crc >> 24];
  }

 private:
  std::array<ByteTable, 4> tables_;
};

// The instruction takes three cycles and starts every cycle, so three registers run over three
// neighbouring lanes of `kLane` bytes, and are joined afterwards.
template <std::size_t kLane>
LOCKSTEP_CRC_TARGET std::uint32_t three_lanes(std::uint32_t start, const std::byte*& at,
                                              std::size_t& left) {
  static const ZeroShift kShift(kLane);
  std::uint64_t first = start;
  while (left >= 3 * kLane) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      first = LOCKSTEP_CRC_WORD(first, load_word(at + i));
      second = LOCKSTEP_CRC_WORD(second, load_word(at + kLane + i));
      third = LOCKSTEP_CRC_WORD(third, load_word(at + 2 * kLane + i));
    }
    const std::uint32_t joined =
        kShift(static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
    first = kShift(joined) ^ static_cast<std::uint32_t>(third);
    at += 3 * kLane;
    left -= 3 * kLane;
  }
  return static_cast<std::uint32_t>(first);
}

#if defined(__x86_64__)

// x^power modulo the polynomial, reflected.
constexpr std::uint32_t power_of_x(int power) {
  std::uint32_t value = std::uint32_t{1} << 31;
  for (int i = 0; i < power; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? kCastagnoli : 0);
  return value;
}

// What moves 16 bytes ahead by `kBits`: the low half is multiplied by the first number, the high
// half by the second. Both account for the bit that a product of reflected numbers is short of.
template <int kBits>
LOCKSTEP_CRC_TARGET inline __m128i fold_factors() {
  constexpr std::uint32_t kLow = power_of_x(kBits + 31);
  constexpr std::uint32_t kHigh = power_of_x(kBits - 33);
  return _mm_set_epi64x(kHigh, kLow);
}

LOCKSTEP_CRC_TARGET inline __m128i fold_into(__m128i sum, __m128i factors, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(sum, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(sum, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

LOCKSTEP_CRC_TARGET inline __m128i load_vector(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

// Carry-less products and the CRC instruction use different ports of the CPU, so both work at the
// same time. A block is four parts, one after another: the first, of kRounds x 64 bytes, is folded
// by products into four vectors; three of kRounds x 24 bytes are lanes as in three_lanes().
template <std::size_t kRounds>
LOCKSTEP_CRC_TARGET std::uint32_t folded_and_lanes(std::uint32_t start, const std::byte*& at,
                                                   std::size_t& left) {
  constexpr std::size_t kFolded = 64 * kRounds;
  constexpr std::size_t kLane = 24 * kRounds;
  constexpr std::size_t kBlock = kFolded + 3 * kLane;
  if (left < kBlock) return start;
  static const ZeroShift kShift(kLane);
  const __m128i far = fold_factors<512>();
  const __m128i near = fold_factors<128>();
  for (; left >= kBlock; at += kBlock, left -= kBlock) {
    const std::byte* lane = at + kFolded;
    __m128i sum0 = _mm_xor_si128(load_vector(at), _mm_cvtsi32_si128(static_cast<int>(start)));
    __m128i sum1 = load_vector(at + 16);
    __m128i sum2 = load_vector(at + 32);
    __m128i sum3 = load_vector(at + 48);
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    const auto* const end = at + kFolded;
    for (const std::byte* from = at + 64;; from += 64, lane += 24) {
      for (std::size_t i = 0; i < 24; i += 8) {
        first = LOCKSTEP_CRC_WORD(first, load_word(lane + i));
        second = LOCKSTEP_CRC_WORD(second, load_word(lane + kLane + i));
        third = LOCKSTEP_CRC_WORD(third, load_word(lane + 2 * kLane + i));
      }
      if (from == end) break;
      sum0 = fold_into(sum0, far, load_vector(from));
      sum1 = fold_into(sum1, far, load_vector(from + 16));
      sum2 = fold_into(sum2, far, load_vector(from + 32));
      sum3 = fold_into(sum3, far, load_vector(from + 48));
    }
    sum1 = fold_into(sum0, near, sum1);
    sum2 = fold_into(sum1, near, sum2);
    sum3 = fold_into(sum2, near, sum3);
    std::uint64_t crc =
        LOCKSTEP_CRC_WORD(0, static_cast<std::uint64_t>(_mm_extract_epi64(sum3, 0)));
    crc = LOCKSTEP_CRC_WORD(crc, static_cast<std::uint64_t>(_mm_extract_epi64(sum3, 1)));
    start = kShift(static_cast<std::uint32_t>(crc)) ^ static_cast<std::uint32_t>(first);
    start = kShift(start) ^ static_cast<std::uint32_t>(second);
    start = kShift(start) ^ static_cast<std::uint32_t>(third);
  }
  return start;
}

#endif

LOCKSTEP_CRC_TARGET std::uint32_t crc32c_by_instructions(std::span<const std::byte> data,
                                                         std::uint32_t crc) {
  const std::byte* at = data.data();
  std::size_t left = data.size();
  std::uint32_t start = ~crc;
#if defined(__x86_64__)
  start = folded_and_lanes<240>(start, at, left);
  start = folded_and_lanes<30>(start, at, left);
#else
  start = three_lanes<4096>(start, at, left);
#endif
  start = three_lanes<256>(start, at, left);
  std::uint64_t sum = start;
  for (; left >= 8; at += 8, left -= 8) sum = LOCKSTEP_CRC_WORD(sum, load_word(at));
  for (; left > 0; ++at, --left) sum = LOCKSTEP_CRC_BYTE(sum, static_cast<unsigned char>(*at));
  return ~static_cast<std::uint32_t>(sum);
}

bool has_instructions() { return cpu_features().crc32c; }

#else

constexpr std::string_view kInstructions = "";
std::uint32_t crc32c_by_instructions(std::span<const std::byte> data, std::uint32_t crc) {
  return crc32c_by_tables(data, crc);
}
bool has_instructions() { return false; }

#endif

}  // namespace

std::uint32_t crc32c_by_tables(std::span<const std::byte> data, std::uint32_t crc) {
  const std::byte* at = data.data();
  std::size_t left = data.size();
  std::uint32_t sum = ~crc;
  for (; left >= 8; at += 8, left -= 8) {
    std::uint32_t low = sum;
    for (std::size_t i = 0; i < 4; ++i) low ^= static_cast<std::uint32_t>(at[i]) << (8 * i);
    sum = kSlicing[7][low & 0xff] ^ kSlicing[6][low >> 8 & 0xff] ^ kSlicing[5][low >> 16 & 0xff] ^
          kSlicing[4][low >> 24];
    for (std::size_t i = 4; i < 8; ++i) sum ^= kSlicing[7 - i][static_cast<std::size_t>(at[i])];
  }
  for (; left > 0; ++at, --left) {
    sum = (sum >> 8) ^ kSlicing[0][(sum ^ static_cast<std::uint32_t>(*at)) & 0xff];
  }
  return ~sum;
}

std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t crc) {
  static const bool kHas = has_instructions();
  return kHas ? crc32c_by_instructions(data, crc) : crc32c_by_tables(data, crc);
}

std::string_view crc32c_implementation() { return has_instructions() ? kInstructions : "tables"; }

}  // namespace lockstep
