// The checksums of a .tokens file (writer.h draws where they are): one for each block.
//
// A block is kBlockBytes of what follows the header: ids, padding and the ends of documents. It is
// small, as the first read of a block has to read all of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "lockstep/base/file/mapped_file.h"

namespace lockstep::data {

inline constexpr std::size_t kBlockBytes = std::size_t{64} << 10;

constexpr std::uint64_t blocks_of(std::uint64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes;
}

// Computes them while the file is written.
class BlockChecksums {
 public:
  // What follows the header, in pieces of any size.
  void add(std::span<const std::byte> bytes);
  // Of all blocks, the last one shorter.
  std::vector<std::uint32_t> finish();

 private:
  std::vector<std::uint32_t> done_;
  std::uint32_t block_ = 0;      // of the block that has begun
  std::size_t block_bytes_ = 0;  // how much of it there is
};

// Compares blocks of a mapped file, each once. Any number of threads may call it.
class BlockVerifier {
 public:
  // `blocks` of what is at `begin` are compared with the numbers at `checksums`, where the last
  // block ends. The file has to live as long.
  BlockVerifier(const MappedFile& file, std::filesystem::path path, std::size_t begin,
                std::size_t checksums, std::uint64_t blocks);

  // The blocks that bytes [begin, end) of the file are in. Throws Error(kProtocol) with the file
  // and the block where one was changed.
  void verify(std::size_t begin, std::size_t end);
  // Some of all blocks, evenly spread, the first and the last among them.
  void verify_sample();

 private:
  void verify_block(std::uint64_t block);

  const MappedFile& file_;
  std::filesystem::path path_;
  std::size_t begin_;
  std::size_t checksums_;
  std::vector<std::atomic<bool>> is_good_;  // of each block: it has been compared
};

}  // namespace lockstep::data
