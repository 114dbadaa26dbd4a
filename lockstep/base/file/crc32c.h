// CRC-32C, Castagnoli's, as iSCSI, ext4 and TensorFlow's records have it.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

// About half a gigabyte a second: for short records, not for weights.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace lockstep
