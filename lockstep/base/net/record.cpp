#include "lockstep/base/net/record.h"

#include "lockstep/base/error.h"
#include "lockstep/base/simd/crc32c.h"

namespace lockstep {
namespace {

constexpr std::size_t kCheckedBytes = offsetof(RecordHeader, header);

}  // namespace

void RecordHeader::seal() { header = crc32c(bytes().first(kCheckedBytes)); }

void RecordHeader::check(std::uint64_t expected) const {
  if (const std::uint32_t sum = crc32c(bytes().first(kCheckedBytes)); sum != header) {
    fail(ErrorCode::kCorrupted, "the header of record {} has the checksum {:08x}, expected {:08x}",
         expected, header, sum);
  }
  if (number != static_cast<std::uint32_t>(expected)) {
    fail(ErrorCode::kCorrupted, "record {} arrived where record {} was expected", number, expected);
  }
  if (length == 0 || length > kLongestRecord) {
    fail(ErrorCode::kCorrupted, "record {} claims to have {} bytes, expected 1 to {}", expected,
         length, kLongestRecord);
  }
}

}  // namespace lockstep
