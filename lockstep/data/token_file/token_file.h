// Memory-mapped files of token ids.
//
// The format is detected from the content:
//
//   lockstep   .tokens: a header that knows vocabulary and documents (data/token_file/writer.h)
//   nanogpt    .bin: nothing but u16 ids
//   llm.c      .bin: 1024 bytes of header, then u16 ids (version 1) or u32 ids (version 7)
//   megatron   .bin and .idx beside it; either may be named, or the path without ending
//
// A file is not believed: sizes that do not fit together throw Error(kProtocol) when it is opened;
// an id that is out of the vocabulary throws when it is read, and so does all reading of a file
// that became shorter since it was opened. lockstep's own files have a checksum for each block of
// 64 KiB: it is compared when the first of its tokens is read, that of some blocks when the file is
// opened. Any number of threads may read at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

enum class TokenFormat : std::uint8_t { kLockstep, kNanoGpt, kLlmC, kMegatron };
std::string_view name(TokenFormat format);  // "lockstep", "nanogpt", "llm.c", "megatron"

class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path);
  TokenFile(TokenFile&&) noexcept;
  TokenFile& operator=(TokenFile&&) noexcept;
  ~TokenFile();

  const std::filesystem::path& path() const;
  TokenFormat format() const;
  int bytes_per_token() const;
  std::uint64_t size() const;  // in tokens
  // Ids are below it; 0 where the file does not say.
  std::int64_t vocabulary() const;
  // Number of documents, where the format knows them; else 0.
  std::uint64_t documents() const;
  // Where document `index` begins and ends, in tokens.
  struct Document {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
  };
  Document document(std::uint64_t index) const;
  // How many blocks have a checksum; 0: the file has none.
  std::uint64_t checksums() const;
  // content_hash() of the json of the tokenizer that made it; empty where the file does not say.
  const std::string& tokenizer_hash() const;

  // The tokens first, first + 1, ... Throws Error(kInvalidArgument) beyond the end, and for an id
  // that is not below `limit`, with its position; Error(kProtocol) where the file became shorter,
  // or where bytes were changed since it was written, with the block.
  void read(std::uint64_t first, std::span<TokenId> to, std::int64_t limit) const;

 private:
  struct Mapped;
  std::unique_ptr<Mapped> mapped_;
};

}  // namespace lockstep::data
