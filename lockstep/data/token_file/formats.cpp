#include "lockstep/data/token_file/formats.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/simd/crc32c.h"
#include "lockstep/base/text/hex.h"
#include "lockstep/data/token_file/checksums.h"

namespace lockstep::data {
namespace {

using Bytes = std::span<const std::byte>;

// The caller has made sure that the bytes are there.
template <class T>
T number_at(Bytes bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class... Args>
[[noreturn]] void reject(const std::filesystem::path& path, fmt::format_string<Args...> format,
                         Args&&... args) {
  fail(ErrorCode::kProtocol, "{} {}", path.string(),
       fmt::format(format, std::forward<Args>(args)...));
}

// The last checksum is that of the header and the other checksums.
void check_header(Bytes bytes, std::uint64_t checksums, std::uint64_t blocks,
                  const std::filesystem::path& path) {
  const std::uint32_t found =
      crc32c(bytes.subspan(checksums, 4 * blocks), crc32c(bytes.first(sizeof(TokensHeader))));
  const auto expected = number_at<std::uint32_t>(bytes, checksums + 4 * blocks);
  if (found != expected) {
    reject(path,
           "is damaged: its header and checksums have the CRC-32C {:08x}, but {:08x} was written; "
           "copy the file again, or make it again with lockstep tokenize",
           found, expected);
  }
}

TokenLayout read_lockstep(Bytes bytes, const std::filesystem::path& path) {
  if (bytes.size() < sizeof(TokensHeader)) {
    reject(path, "has {} bytes, and a .tokens file has a header of {}", bytes.size(),
           sizeof(TokensHeader));
  }
  const auto header = number_at<TokensHeader>(bytes, 0);
  const bool has_checksums = header.version == TokensHeader::kVersion;
  if (!has_checksums && header.version != TokensHeader::kVersionWithoutChecksums) {
    reject(path, "is a .tokens file of version {}; this lockstep reads versions {} and {}",
           header.version, TokensHeader::kVersionWithoutChecksums, TokensHeader::kVersion);
  }
  if (header.bytes_per_token != 2 && header.bytes_per_token != 4) {
    reject(path, "has {} bytes per token, where 2 or 4 were expected", header.bytes_per_token);
  }
  if (header.vocabulary == 0 || header.vocabulary > std::uint64_t{kLargestVocabulary}) {
    reject(path, "has a vocabulary of {}, where 1 to {} were expected", header.vocabulary,
           kLargestVocabulary);
  }
  const std::uint64_t payload_bytes = bytes.size() - sizeof(TokensHeader);
  const int width = static_cast<int>(header.bytes_per_token);
  const bool may_fit = header.tokens <= payload_bytes / header.bytes_per_token &&
                       header.documents <= payload_bytes / 8;
  const std::uint64_t end =
      may_fit ? document_ends_begin(header.tokens, width) + 8 * header.documents : 0;
  const std::uint64_t blocks = may_fit && has_checksums ? blocks_of(end - sizeof(TokensHeader)) : 0;
  const std::uint64_t checksum_bytes = has_checksums ? 4 * (blocks + 1) : 0;
  if (!may_fit || end + checksum_bytes != bytes.size()) {
    reject(path, "has {} bytes, which is not what {} tokens and {} documents take", bytes.size(),
           header.tokens, header.documents);
  }
  if (has_checksums) check_header(bytes, end, blocks, path);
  const bool knows_tokenizer = header.tokenizer != std::array<std::byte, 16>{};
  return {.format = TokenFormat::kLockstep,
          .begin = sizeof(TokensHeader),
          .width = width,
          .tokens = header.tokens,
          .vocabulary = static_cast<std::int64_t>(header.vocabulary),
          .documents = header.documents,
          .tokenizer = knows_tokenizer ? to_hex(header.tokenizer) : "",
          .checksums = has_checksums ? end : 0,
          .blocks = blocks};
}

bool is_llm_c(std::int32_t magic) {
  return magic == LlmCHeader::kMagicOfTwoBytes || magic == LlmCHeader::kMagicOfFourBytes ||
         magic == LlmCHeader::kMagicOfEvaluation;
}

TokenLayout read_llm_c(Bytes bytes, const std::filesystem::path& path) {
  if (bytes.size() < sizeof(LlmCHeader)) {
    reject(path, "begins like a file of llm.c, but has {} bytes where the header takes {}",
           bytes.size(), sizeof(LlmCHeader));
  }
  const auto header = number_at<LlmCHeader>(bytes, 0);
  if (header.magic == LlmCHeader::kMagicOfEvaluation) {
    reject(path, "holds evaluation questions in llm.c's format, not training tokens");
  }
  const bool wide = header.magic == LlmCHeader::kMagicOfFourBytes;
  const int version = wide ? LlmCHeader::kVersionOfFourBytes : LlmCHeader::kVersionOfTwoBytes;
  if (header.version != version) {
    reject(path, "is a file of llm.c of version {}, where {} was expected", header.version,
           version);
  }
  const int width = wide ? 4 : 2;
  const std::size_t payload_bytes = bytes.size() - sizeof(LlmCHeader);
  if (header.tokens < 0 || static_cast<std::size_t>(header.tokens) * width != payload_bytes) {
    reject(path, "says it has {} tokens, but has {} bytes for them", header.tokens, payload_bytes);
  }
  return {.format = TokenFormat::kLlmC,
          .begin = sizeof(LlmCHeader),
          .width = width,
          .tokens = static_cast<std::uint64_t>(header.tokens)};
}

// Where the parts of an .idx begin.
struct MegatronIndex {
  std::uint64_t sequences = 0;
  std::uint64_t indices = 0;  // one more than documents
  std::size_t sizes = 0;      // i32 each
  std::size_t pointers = 0;   // i64 each
  std::size_t documents = 0;  // i64 each
};

MegatronIndex read_index(Bytes index, const std::filesystem::path& path) {
  if (index.size() < kMegatronHeaderBytes || !begins_with(index, kMegatronMagic)) {
    reject(path, "has an .idx beside it that is not a Megatron index");
  }
  if (const auto version = number_at<std::uint64_t>(index, 9); version != kMegatronVersion) {
    reject(path, "has an index of version {}, where {} was expected", version, kMegatronVersion);
  }
  MegatronIndex parts{.sequences = number_at<std::uint64_t>(index, 18),
                      .indices = number_at<std::uint64_t>(index, 26)};
  const std::uint64_t payload_bytes = index.size() - kMegatronHeaderBytes;
  // A mode per sequence may follow, in datasets that are not of text alone.
  if (parts.sequences > payload_bytes / 12 ||
      parts.indices > (payload_bytes - 12 * parts.sequences) / 8) {
    reject(path, "has an index of {} bytes, too few for {} sequences and {} document indices",
           index.size(), parts.sequences, parts.indices);
  }
  parts.sizes = kMegatronHeaderBytes;
  parts.pointers = parts.sizes + 4 * parts.sequences;
  parts.documents = parts.pointers + 8 * parts.sequences;
  return parts;
}

// Where sequence `number` begins, in tokens; where the last one ends for the number behind it.
std::uint64_t sequence_begin(const MegatronIndex& parts, Bytes index, std::uint64_t number,
                             const TokenLayout& layout, const std::filesystem::path& path) {
  if (number == parts.sequences) return layout.tokens;
  const auto pointer = number_at<std::int64_t>(index, parts.pointers + 8 * number);
  if (pointer < 0 || pointer % layout.width != 0 ||
      static_cast<std::uint64_t>(pointer) / layout.width > layout.tokens) {
    reject(path, "has {} tokens of {} bytes, but its index says that sequence {} lies at byte {}",
           layout.tokens, layout.width, number, pointer);
  }
  return static_cast<std::uint64_t>(pointer) / layout.width;
}

TokenLayout read_megatron(Bytes bytes, Bytes index, const std::filesystem::path& path) {
  const MegatronIndex parts = read_index(index, path);
  const auto type = number_at<std::uint8_t>(index, 17);
  if (type != kMegatronU16 && type != kMegatronI32) {
    reject(path, "has elements of Megatron's type {}; tokens are of type {} (u16) or {} (i32)",
           type, kMegatronU16, kMegatronI32);
  }
  TokenLayout layout{.format = TokenFormat::kMegatron, .width = type == kMegatronU16 ? 2 : 4};
  if (bytes.size() % layout.width != 0) {
    reject(path, "has {} bytes, which is not a whole number of tokens of {} bytes", bytes.size(),
           layout.width);
  }
  layout.tokens = bytes.size() / layout.width;
  layout.documents = parts.indices > 0 ? parts.indices - 1 : 0;
  if (parts.sequences > 0) {
    const std::uint64_t last = parts.sequences - 1;
    const std::uint64_t begin = sequence_begin(parts, index, last, layout, path);
    const auto size = number_at<std::int32_t>(index, parts.sizes + 4 * last);
    if (size < 0 || begin + static_cast<std::uint64_t>(size) != layout.tokens) {
      reject(path, "has {} tokens, but its last sequence begins at {} and has {}", layout.tokens,
             begin, size);
    }
  } else if (layout.tokens > 0) {
    reject(path, "has {} tokens, but no sequences in its index", layout.tokens);
  }
  return layout;
}

TokenLayout read_raw(Bytes bytes, const std::filesystem::path& path) {
  if (path.extension() != ".bin") {
    reject(path,
           "is not a token file of a known format, and plain 2-byte ids need a name ending in "
           ".bin; give text as data.text, or convert it with lockstep tokenize");
  }
  if (bytes.size() % 2 != 0) {
    reject(path, "has an odd number of bytes, {}, where ids of 2 bytes were expected",
           bytes.size());
  }
  return {.format = TokenFormat::kNanoGpt, .begin = 0, .width = 2, .tokens = bytes.size() / 2};
}

}  // namespace

MegatronPaths megatron_paths(const std::filesystem::path& path) {
  std::filesystem::path prefix = path;
  if (path.extension() == ".bin" || path.extension() == ".idx") prefix.replace_extension();
  MegatronPaths paths{prefix, prefix};
  paths.bin += ".bin";
  paths.idx += ".idx";
  return paths;
}

bool begins_with(Bytes bytes, std::span<const char> magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

TokenLayout read_layout(Bytes bytes, Bytes index, const std::filesystem::path& path) {
  if (!index.empty()) return read_megatron(bytes, index, path);
  if (bytes.empty()) reject(path, "is empty, where a token file was expected");
  if (begins_with(bytes, TokensHeader::kMagic)) return read_lockstep(bytes, path);
  if (bytes.size() >= 4 && is_llm_c(number_at<std::int32_t>(bytes, 0))) {
    return read_llm_c(bytes, path);
  }
  return read_raw(bytes, path);
}

void check_last_document(const TokenLayout& layout, Bytes bytes,
                         const std::filesystem::path& path) {
  if (layout.format != TokenFormat::kLockstep || layout.documents == 0) return;
  const std::uint64_t end = document_ends_begin(layout.tokens, layout.width) + 8 * layout.documents;
  const auto last = number_at<std::uint64_t>(bytes, end - 8);
  if (last != layout.tokens) {
    reject(path, "has {} tokens, but its last document ends at {}", layout.tokens, last);
  }
}

TokenFile::Document read_document(const TokenLayout& layout, Bytes bytes, Bytes index,
                                  std::uint64_t number, const std::filesystem::path& path) {
  TokenFile::Document document;
  if (layout.format == TokenFormat::kMegatron) {
    const MegatronIndex parts = read_index(index, path);
    const auto border = [&](std::uint64_t at) {
      const auto sequence = number_at<std::int64_t>(index, parts.documents + 8 * at);
      if (sequence < 0 || static_cast<std::uint64_t>(sequence) > parts.sequences) {
        reject(path, "has {} sequences, but its index says that document {} begins at {}",
               parts.sequences, at, sequence);
      }
      return sequence_begin(parts, index, static_cast<std::uint64_t>(sequence), layout, path);
    };
    document = {.first = border(number), .end = border(number + 1)};
  } else {
    const std::size_t ends = document_ends_begin(layout.tokens, layout.width);
    const auto end = [&](std::uint64_t at) {
      return number_at<std::uint64_t>(bytes, ends + 8 * at);
    };
    document = {.first = number == 0 ? 0 : end(number - 1), .end = end(number)};
  }
  if (document.first > document.end || document.end > layout.tokens) {
    reject(path, "says that document {} reaches from token {} to {} of {}", number, document.first,
           document.end, layout.tokens);
  }
  return document;
}

}  // namespace lockstep::data
