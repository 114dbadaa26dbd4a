// The header of a safetensors file (io/safetensors.h) as text and as entries.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/io/safetensors.h"

namespace lockstep::io {

inline constexpr std::size_t kHeaderSizeBytes = 8;
// The limit of the format; a larger number means that it is not a safetensors file.
inline constexpr std::size_t kLargestHeader = 100'000'000;

struct SafetensorsHeader {
  std::vector<SafetensorsFile::Entry> entries;  // in the order of the data
  std::map<std::string, std::string, std::less<>> metadata;
};

// `data_bytes` is the size of the data after the header, `source` the name in errors. Throws
// Error(kProtocol) unless the entries cover exactly those bytes.
SafetensorsHeader parse_header(std::string_view text, std::size_t data_bytes,
                               std::string_view source);

// With the number of its bytes in front, and spaces behind up to a multiple of 8.
std::string format_header(const SafetensorsHeader& header);

// "F32"
std::string_view safetensors_type(DType dtype);

}  // namespace lockstep::io
