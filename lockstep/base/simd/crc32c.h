// CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of records between ranks.
//
// It finds every error of up to 32 neighbouring bits, and with a probability of 1 - 2^-32 every
// other one. It does not protect against a person who changes data on purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

// The checksum of `before`, whose own checksum is `crc`, followed by `data`. That of nothing is 0.
// Uses the instructions of SSE 4.2 or of ARMv8 where the CPU has them. Any thread may call it.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t crc = 0);

// The same without such instructions, by tables.
std::uint32_t crc32c_by_tables(std::span<const std::byte> data, std::uint32_t crc = 0);

// What crc32c() uses: "sse4.2 and pclmul", "armv8" or "tables".
std::string_view crc32c_implementation();

}  // namespace lockstep
