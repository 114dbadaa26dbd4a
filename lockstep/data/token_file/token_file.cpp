#include "lockstep/data/token_file/token_file.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/file/mapped_file.h"
#include "lockstep/data/token_file/checksums.h"
#include "lockstep/data/token_file/formats.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTokenFormatNames[] = {"lockstep", "nanogpt", "llm.c", "megatron"};

// Widens ids; the later check of the range finds values that are not ids of 31 bits.
template <class Stored>
std::uint32_t widen(const std::byte* from, std::span<TokenId> to) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    Stored id;
    std::memcpy(&id, from + i * sizeof(Stored), sizeof(Stored));
    largest = std::max<std::uint32_t>(largest, id);
    to[i] = static_cast<TokenId>(id);
  }
  return largest;
}

bool is_megatron_index(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none) && begins_with(MappedFile(path).bytes(), kMegatronMagic);
}

}  // namespace

std::string_view name(TokenFormat format) {
  return kTokenFormatNames[static_cast<std::size_t>(format)];
}

struct TokenFile::Mapped {
  fs::path path;  // of the ids
  MappedFile data;
  MappedFile index;  // Megatron's
  TokenLayout layout;
  std::unique_ptr<BlockVerifier> verifier;  // nullptr: the file has no checksums

  // The bytes that say where it begins and ends.
  void verify_document(std::uint64_t number) const {
    if (!verifier) return;
    const std::size_t end = document_ends_begin(layout.tokens, layout.width) + 8 * (number + 1);
    verifier->verify(end - (number > 0 ? 16 : 8), end);
  }
  void check_whole() const {
    data.check_whole();
    index.check_whole();
  }
};

TokenFile::TokenFile(const fs::path& path) : mapped_(std::make_unique<Mapped>()) {
  std::error_code none;
  const MegatronPaths pair = megatron_paths(path);
  const bool names_a_pair = path == pair.idx || path == pair.bin || !fs::exists(path, none);
  mapped_->path = path;
  if (names_a_pair && is_megatron_index(pair.idx)) {
    mapped_->path = pair.bin;
    mapped_->index = MappedFile(pair.idx, MappedFile::Watch::kSize);
  }
  mapped_->data = MappedFile(mapped_->path, MappedFile::Watch::kSize);
  mapped_->layout = read_layout(mapped_->data.bytes(), mapped_->index.bytes(), mapped_->path);
  const TokenLayout& layout = mapped_->layout;
  if (layout.checksums > 0) {
    mapped_->verifier = std::make_unique<BlockVerifier>(mapped_->data, mapped_->path, layout.begin,
                                                        layout.checksums, layout.blocks);
    mapped_->verifier->verify_sample();
  }
  check_last_document(layout, mapped_->data.bytes(), mapped_->path);
}

TokenFile::TokenFile(TokenFile&&) noexcept = default;
TokenFile& TokenFile::operator=(TokenFile&&) noexcept = default;
TokenFile::~TokenFile() = default;

const fs::path& TokenFile::path() const { return mapped_->path; }
TokenFormat TokenFile::format() const { return mapped_->layout.format; }
int TokenFile::bytes_per_token() const { return mapped_->layout.width; }
std::uint64_t TokenFile::size() const { return mapped_->layout.tokens; }
std::int64_t TokenFile::vocabulary() const { return mapped_->layout.vocabulary; }
std::uint64_t TokenFile::documents() const { return mapped_->layout.documents; }
std::uint64_t TokenFile::checksums() const { return mapped_->layout.blocks; }
const std::string& TokenFile::tokenizer_hash() const { return mapped_->layout.tokenizer; }

TokenFile::Document TokenFile::document(std::uint64_t index) const {
  if (index >= documents()) {
    fail(ErrorCode::kInvalidArgument, "{} has {} documents; document {} does not exist",
         path().string(), documents(), index);
  }
  mapped_->check_whole();
  mapped_->verify_document(index);
  const Document document =
      read_document(mapped_->layout, mapped_->data.bytes(), mapped_->index.bytes(), index, path());
  mapped_->check_whole();
  return document;
}

void TokenFile::read(std::uint64_t first, std::span<TokenId> to, std::int64_t limit) const {
  const TokenLayout& layout = mapped_->layout;
  if (first > layout.tokens || to.size() > layout.tokens - first) {
    fail(ErrorCode::kInvalidArgument, "{} has {} tokens; cannot read {} from {} on",
         path().string(), layout.tokens, to.size(), first);
  }
  if (layout.vocabulary > 0) limit = std::min(limit, layout.vocabulary);
  const std::size_t begin = layout.begin + first * layout.width;
  if (mapped_->verifier) mapped_->verifier->verify(begin, begin + to.size() * layout.width);
  const std::byte* from = mapped_->data.bytes().data() + begin;
  const std::uint32_t largest =
      layout.width == 2 ? widen<std::uint16_t>(from, to) : widen<std::uint32_t>(from, to);
  mapped_->check_whole();
  if (to.empty() || largest < limit) return;
  const auto wrong = std::find_if(to.begin(), to.end(), [limit](TokenId id) {
    return static_cast<std::uint32_t>(id) >= limit;
  });
  fail(ErrorCode::kInvalidArgument,
       "token {} of {} is {}, but ids below {} were expected; the file belongs to a tokenizer of "
       "another vocabulary, or is damaged",
       first + static_cast<std::uint64_t>(wrong - to.begin()), path().string(),
       static_cast<std::uint32_t>(*wrong), limit);
}

}  // namespace lockstep::data
