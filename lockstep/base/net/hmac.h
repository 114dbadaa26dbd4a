// Message authentication: HMAC-SHA256 (RFC 2104).
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace lockstep {

using Mac = std::array<std::byte, 32>;

Mac hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

// The time does not depend on where the bytes differ, so it reveals nothing about them.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

// Unpredictable bytes from the kernel, for keys and nonces.
void fill_random(std::span<std::byte> bytes);

}  // namespace lockstep
