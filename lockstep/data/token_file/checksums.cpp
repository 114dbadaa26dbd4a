#include "lockstep/data/token_file/checksums.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/simd/crc32c.h"

namespace lockstep::data {
namespace {

constexpr std::uint64_t kSampledBlocks = 64;

}  // namespace

void BlockChecksums::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kBlockBytes - block_bytes_);
    block_ = crc32c(bytes.first(count), block_);
    block_bytes_ += count;
    bytes = bytes.subspan(count);
    if (block_bytes_ < kBlockBytes) continue;
    done_.push_back(block_);
    block_ = 0;
    block_bytes_ = 0;
  }
}

std::vector<std::uint32_t> BlockChecksums::finish() {
  if (block_bytes_ > 0) done_.push_back(block_);
  return std::move(done_);
}

BlockVerifier::BlockVerifier(const MappedFile& file, std::filesystem::path path, std::size_t begin,
                             std::size_t checksums, std::uint64_t blocks)
    : file_(file), path_(std::move(path)), begin_(begin), checksums_(checksums), is_good_(blocks) {}

void BlockVerifier::verify(std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  const std::uint64_t last = (end - 1 - begin_) / kBlockBytes;
  for (std::uint64_t block = (begin - begin_) / kBlockBytes; block <= last; ++block) {
    if (!is_good_[block].load(std::memory_order_relaxed)) verify_block(block);
  }
}

void BlockVerifier::verify_sample() {
  const std::uint64_t blocks = is_good_.size();
  const std::uint64_t sampled = std::min(blocks, kSampledBlocks);
  for (std::uint64_t i = 0; i < sampled; ++i) {
    const std::uint64_t block = sampled == 1 ? 0 : i * (blocks - 1) / (sampled - 1);
    if (!is_good_[block].load(std::memory_order_relaxed)) verify_block(block);
  }
}

void BlockVerifier::verify_block(std::uint64_t block) {
  const std::size_t begin = begin_ + block * kBlockBytes;
  const std::size_t end = std::min(begin + kBlockBytes, checksums_);
  const std::uint32_t found = crc32c(file_.bytes().subspan(begin, end - begin));
  std::uint32_t expected = 0;
  std::memcpy(&expected, file_.bytes().data() + checksums_ + block * sizeof(expected),
              sizeof(expected));
  file_.check_whole();
  if (found != expected) {
    fail(ErrorCode::kProtocol,
         "{} is damaged: block {} of {}, bytes {} to {}, has the CRC-32C {:08x}, but {:08x} was "
         "written; data was corrupted on the disk or when it was copied. Copy the file again, or "
         "make it again with lockstep tokenize; what a run made of data.text it makes again when "
         "the "
         "file is removed",
         path_.string(), block, is_good_.size(), begin, end - 1, found, expected);
  }
  is_good_[block].store(true, std::memory_order_relaxed);
}

}  // namespace lockstep::data
