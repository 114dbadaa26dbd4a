// The headers of token files; writer.h draws them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lockstep/data/token_file/token_file.h"

namespace lockstep::data {

static_assert(std::endian::native == std::endian::little, "ids are read in host byte order");

inline constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 31;
inline constexpr std::int64_t kLargestVocabularyOfTwoBytes = 1 << 16;

// Of .tokens.
struct TokensHeader {
  static constexpr std::array<char, 8> kMagic = {'L', 'O', 'C', 'K', 'T', 'O', 'K', 'S'};
  static constexpr std::uint32_t kVersion = 2;
  static constexpr std::uint32_t kVersionWithoutChecksums = 1;

  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t bytes_per_token = 0;
  std::uint64_t vocabulary = 0;
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  std::array<std::byte, 16> tokenizer{};  // zeros: not known
  std::uint64_t unused = 0;
};
static_assert(sizeof(TokensHeader) == 64);

// Of llm.c: 256 numbers of which three are used.
struct LlmCHeader {
  static constexpr std::int32_t kMagicOfTwoBytes = 20240520;
  static constexpr std::int32_t kVersionOfTwoBytes = 1;
  static constexpr std::int32_t kMagicOfFourBytes = 20240801;
  static constexpr std::int32_t kVersionOfFourBytes = 7;
  static constexpr std::int32_t kMagicOfEvaluation = 20240522;  // questions, no stream of tokens

  std::int32_t magic = 0;
  std::int32_t version = 0;
  std::int32_t tokens = 0;
  std::array<std::int32_t, 253> unused{};
};
static_assert(sizeof(LlmCHeader) == 1024);

// Of Megatron's .idx. Its numbers are not aligned: they are copied out one by one.
inline constexpr std::array<char, 9> kMegatronMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
inline constexpr std::uint64_t kMegatronVersion = 1;
inline constexpr std::uint8_t kMegatronI32 = 4;  // codes of types
inline constexpr std::uint8_t kMegatronU16 = 8;
inline constexpr std::size_t kMegatronHeaderBytes = 9 + 8 + 1 + 8 + 8;

// The two files of a Megatron dataset, whichever of them, or what they have in common, is named.
struct MegatronPaths {
  std::filesystem::path bin;
  std::filesystem::path idx;
};
MegatronPaths megatron_paths(const std::filesystem::path& path);

// The layout of a validated file.
struct TokenLayout {
  TokenFormat format = TokenFormat::kLockstep;
  std::size_t begin = 0;  // of the ids, in bytes
  int width = 2;          // bytes per token
  std::uint64_t tokens = 0;
  std::int64_t vocabulary = 0;
  std::uint64_t documents = 0;
  std::string tokenizer;  // hash in hexadecimal digits; empty: not known
  // Of .tokens: where the checksums of blocks begin, and how many there are. 0: it has none.
  std::size_t checksums = 0;
  std::uint64_t blocks = 0;
};

bool begins_with(std::span<const std::byte> bytes, std::span<const char> magic);
// `index` holds the .idx of a Megatron dataset and is empty for the others. Throws
// Error(kProtocol), with `path`, for an invalid file.
TokenLayout read_layout(std::span<const std::byte> bytes, std::span<const std::byte> index,
                        const std::filesystem::path& path);
// Throws Error(kProtocol) if the documents of a .tokens do not end with its tokens.
void check_last_document(const TokenLayout& layout, std::span<const std::byte> bytes,
                         const std::filesystem::path& path);
// Throws Error(kProtocol) if the bounds of this document are invalid.
TokenFile::Document read_document(const TokenLayout& layout, std::span<const std::byte> bytes,
                                  std::span<const std::byte> index, std::uint64_t number,
                                  const std::filesystem::path& path);

// Where the ends of documents begin in a .tokens: behind the ids, at a multiple of 8.
constexpr std::uint64_t document_ends_begin(std::uint64_t tokens, int width) {
  return (sizeof(TokensHeader) + tokens * static_cast<std::uint64_t>(width) + 7) / 8 * 8;
}

}  // namespace lockstep::data
