// Writes token files: lockstep's own, and those that nanoGPT, llm.c and Megatron read.
//
// lockstep, .tokens; all numbers are little-endian:
//
//   byte 0   "LOCKTOKS"
//        8   u32  version, 2; files of version 1 have no checksums
//       12   u32  bytes per token, 2 or 4
//       16   u64  vocabulary: all ids are below it
//       24   u64  tokens
//       32   u64  documents
//       40   16 bytes: hash of the tokenizer's json (base/file/content_hash.h); zeros: not known
//       56   u64  0
//       64   ids, one after the other; zeros up to a multiple of 8 bytes
//            u64 for each document: the token at which it ends, rising, the last one `tokens`
//            u32 for each block of 64 KiB from byte 64 to here, the last one shorter: its CRC-32C
//            u32 CRC-32C of the header and the checksums of blocks
//
// nanogpt, .bin      u16 ids and nothing else
// llm.c, .bin        256 i32: 20240520, 1, tokens, zeros; then u16 ids
//                    or       20240801, 7, tokens, zeros; then u32 ids
// megatron, .bin     u16 or i32 ids
//           .idx     "MMIDIDX" and two zeros, u64 version 1, u8 type (8: u16, 4: i32),
//                    u64 sequences, u64 documents + 1, then for each sequence its tokens (i32), for
//                    each its first byte in the .bin (i64), then the sequence that each document
//                    begins with and the number of sequences (i64)
//
// Ids take 2 bytes where the vocabulary has at most 65,536 of them, else 4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/token_file/token_file.h"

namespace lockstep::data {

struct TokenWriterSetup {
  TokenFormat format = TokenFormat::kLockstep;
  std::int64_t vocabulary = 0;
  std::string tokenizer_hash;  // 32 hexadecimal digits, or empty
};

// The files that a writer to `path` makes, that of the ids first.
std::vector<std::filesystem::path> token_paths(const std::filesystem::path& path,
                                               TokenFormat format);

// The file appears when finish() returns; without it an existing file is unchanged. Every call
// throws Error(kSystem) on write errors.
class TokenWriter {
 public:
  // Throws Error(kInvalidArgument) where the format cannot hold such ids.
  TokenWriter(const std::filesystem::path& path, const TokenWriterSetup& setup);
  TokenWriter(TokenWriter&&) noexcept;
  ~TokenWriter();

  // Throws Error(kInvalidArgument) for an id out of the vocabulary.
  void append(std::span<const TokenId> ids);
  // What was appended since the last one is a document, be it empty.
  void end_document();
  // Ends the last document where it has tokens.
  void finish();

  std::uint64_t tokens() const;
  std::uint64_t documents() const;
  const std::filesystem::path& path() const;  // of the ids

 private:
  struct Writing;
  std::unique_ptr<Writing> writing_;
};

}  // namespace lockstep::data
