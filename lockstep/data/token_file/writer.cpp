#include "lockstep/data/token_file/writer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/file/unfinished_file.h"
#include "lockstep/base/simd/crc32c.h"
#include "lockstep/base/text/hex.h"
#include "lockstep/data/token_file/checksums.h"
#include "lockstep/data/token_file/formats.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWriteBufferBytes = std::size_t{1} << 20;

template <class T>
std::span<const std::byte> bytes_of_value(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

int check_setup(const fs::path& path, const TokenWriterSetup& setup) {
  if (setup.vocabulary < 1 || setup.vocabulary > kLargestVocabulary) {
    fail(ErrorCode::kInvalidArgument, "{}: a vocabulary of {} ids cannot be written", path.string(),
         setup.vocabulary);
  }
  const int width = setup.vocabulary <= kLargestVocabularyOfTwoBytes ? 2 : 4;
  if (setup.format == TokenFormat::kNanoGpt && width != 2) {
    fail(ErrorCode::kInvalidArgument,
         "{}: nanogpt's format has ids of 2 bytes, too few for a vocabulary of {}; write another "
         "format",
         path.string(), setup.vocabulary);
  }
  if (setup.format == TokenFormat::kNanoGpt && path.extension() != ".bin") {
    fail(ErrorCode::kInvalidArgument, "{}: the name of a file in nanogpt's format must end in .bin",
         path.string());
  }
  return width;
}

// What belongs in front of the ids: zeros until finish() knows what to write there.
std::size_t header_bytes(TokenFormat format) {
  switch (format) {
    case TokenFormat::kLockstep:
      return sizeof(TokensHeader);
    case TokenFormat::kLlmC:
      return sizeof(LlmCHeader);
    case TokenFormat::kNanoGpt:
    case TokenFormat::kMegatron:
      break;
  }
  return 0;
}

}  // namespace

std::vector<fs::path> token_paths(const fs::path& path, TokenFormat format) {
  if (format != TokenFormat::kMegatron) return {path};
  const MegatronPaths pair = megatron_paths(path);
  return {pair.bin, pair.idx};
}

struct TokenWriter::Writing {
  Writing(const fs::path& path, const TokenWriterSetup& chosen)
      : setup(chosen),
        width(check_setup(path, chosen)),
        ids_path(token_paths(path, chosen.format).front()),
        file(ids_path) {
    if (setup.format == TokenFormat::kMegatron) index.emplace(megatron_paths(path).idx);
    buffer.reserve(kWriteBufferBytes);
    buffer.resize(header_bytes(setup.format));
  }

  template <class Stored>
  void store(std::span<const TokenId> ids) {
    const std::size_t at = buffer.size();
    buffer.resize(at + ids.size() * sizeof(Stored));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto id = static_cast<Stored>(ids[i]);
      std::memcpy(buffer.data() + at + i * sizeof(Stored), &id, sizeof(Stored));
    }
  }

  void flush() {
    if (setup.format == TokenFormat::kLockstep) {
      checksums.add(std::span(buffer).subspan(file.size() == 0 ? sizeof(TokensHeader) : 0));
    }
    file.append(buffer);
    buffer.clear();
  }

  void finish_lockstep() {
    TokensHeader header;
    header.bytes_per_token = static_cast<std::uint32_t>(width);
    header.vocabulary = static_cast<std::uint64_t>(setup.vocabulary);
    header.tokens = tokens;
    header.documents = ends.size();
    if (!setup.tokenizer_hash.empty()) {
      const auto hash = from_hex(setup.tokenizer_hash);
      if (!hash || hash->size() != header.tokenizer.size()) {
        fail(ErrorCode::kInvalidArgument, "'{}' is not the hash of a tokenizer",
             setup.tokenizer_hash);
      }
      std::copy(hash->begin(), hash->end(), header.tokenizer.begin());
    }
    const std::vector<std::byte> padding(document_ends_begin(tokens, width) - file.size());
    for (const auto bytes : {std::span<const std::byte>(padding),
                             std::span<const std::byte>(std::as_bytes(std::span(ends)))}) {
      checksums.add(bytes);
      file.append(bytes);
    }
    const std::vector<std::uint32_t> blocks = checksums.finish();
    file.append(std::as_bytes(std::span(blocks)));
    file.append(
        bytes_of_value(crc32c(std::as_bytes(std::span(blocks)), crc32c(bytes_of_value(header)))));
    file.overwrite(0, bytes_of_value(header));
  }

  void finish_llm_c() {
    LlmCHeader header;
    header.magic = width == 2 ? LlmCHeader::kMagicOfTwoBytes : LlmCHeader::kMagicOfFourBytes;
    header.version = width == 2 ? LlmCHeader::kVersionOfTwoBytes : LlmCHeader::kVersionOfFourBytes;
    header.tokens = static_cast<std::int32_t>(tokens);
    file.overwrite(0, bytes_of_value(header));
  }

  void finish_megatron() {
    // A sequence is a document, or a part of one that has more tokens than an i32 can count.
    constexpr std::uint64_t kLongest = std::numeric_limits<std::int32_t>::max();
    std::vector<std::int32_t> sizes;
    std::vector<std::int64_t> pointers;
    std::vector<std::int64_t> documents = {0};
    std::uint64_t begin = 0;
    for (const std::uint64_t end : ends) {
      do {
        const std::uint64_t size = std::min(end - begin, kLongest);
        sizes.push_back(static_cast<std::int32_t>(size));
        pointers.push_back(static_cast<std::int64_t>(begin * static_cast<std::uint64_t>(width)));
        begin += size;
      } while (begin < end);
      documents.push_back(static_cast<std::int64_t>(sizes.size()));
    }
    index->append(std::as_bytes(std::span(kMegatronMagic)));
    index->append(bytes_of_value(kMegatronVersion));
    index->append(bytes_of_value(width == 2 ? kMegatronU16 : kMegatronI32));
    index->append(bytes_of_value(static_cast<std::uint64_t>(sizes.size())));
    index->append(bytes_of_value(static_cast<std::uint64_t>(documents.size())));
    index->append(std::as_bytes(std::span(sizes)));
    index->append(std::as_bytes(std::span(pointers)));
    index->append(std::as_bytes(std::span(documents)));
  }

  TokenWriterSetup setup;
  int width;
  fs::path ids_path;
  UnfinishedFile file;
  std::optional<UnfinishedFile> index;  // Megatron's
  std::vector<std::byte> buffer;        // ids that are not in the file yet
  BlockChecksums checksums;             // of lockstep's own format
  std::uint64_t tokens = 0;
  std::vector<std::uint64_t> ends;  // of documents
};

TokenWriter::TokenWriter(const fs::path& path, const TokenWriterSetup& setup)
    : writing_(std::make_unique<Writing>(path, setup)) {}

TokenWriter::TokenWriter(TokenWriter&&) noexcept = default;
TokenWriter::~TokenWriter() = default;

std::uint64_t TokenWriter::tokens() const { return writing_->tokens; }
std::uint64_t TokenWriter::documents() const { return writing_->ends.size(); }
const fs::path& TokenWriter::path() const { return writing_->ids_path; }

void TokenWriter::append(std::span<const TokenId> ids) {
  Writing& writing = *writing_;
  const auto wrong = std::find_if(
      ids.begin(), ids.end(), [&](TokenId id) { return id < 0 || id >= writing.setup.vocabulary; });
  if (wrong != ids.end()) {
    fail(ErrorCode::kInvalidArgument, "{}: token {} is {}, out of a vocabulary of {}",
         path().string(), writing.tokens + static_cast<std::uint64_t>(wrong - ids.begin()), *wrong,
         writing.setup.vocabulary);
  }
  constexpr std::uint64_t kMostOfLlmC = std::numeric_limits<std::int32_t>::max();
  if (writing.setup.format == TokenFormat::kLlmC && writing.tokens + ids.size() > kMostOfLlmC) {
    fail(ErrorCode::kInvalidArgument,
         "{}: a file of llm.c's format holds at most {} tokens; write several, or another format",
         path().string(), kMostOfLlmC);
  }
  writing.tokens += ids.size();
  while (!ids.empty()) {
    const std::size_t count =
        std::min(ids.size(), kWriteBufferBytes / static_cast<std::size_t>(writing.width));
    if (writing.width == 2) {
      writing.store<std::uint16_t>(ids.first(count));
    } else {
      writing.store<std::uint32_t>(ids.first(count));
    }
    if (writing.buffer.size() >= kWriteBufferBytes) writing.flush();
    ids = ids.subspan(count);
  }
}

void TokenWriter::end_document() { writing_->ends.push_back(writing_->tokens); }

void TokenWriter::finish() {
  Writing& writing = *writing_;
  if (writing.tokens > (writing.ends.empty() ? 0 : writing.ends.back())) end_document();
  writing.flush();
  switch (writing.setup.format) {
    case TokenFormat::kLockstep:
      writing.finish_lockstep();
      break;
    case TokenFormat::kLlmC:
      writing.finish_llm_c();
      break;
    case TokenFormat::kMegatron:
      writing.finish_megatron();
      break;
    case TokenFormat::kNanoGpt:
      break;
  }
  writing.file.finish();
  if (writing.index) writing.index->finish();
}

}  // namespace lockstep::data
