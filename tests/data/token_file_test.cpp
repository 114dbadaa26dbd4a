// Token files, written and read, and those that lie.
#include "lockstep/data/token_file/token_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/content_hash.h"
#include "lockstep/data/token_file/checksums.h"
#include "lockstep/data/token_file/formats.h"
#include "lockstep/data/token_file/writer.h"
#include "tests/data/temporary_folder.h"

namespace lockstep::data::token_file_test {
namespace {

using fixtures::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TokenFormat kAllFormats[] = {TokenFormat::kLockstep, TokenFormat::kNanoGpt,
                                       TokenFormat::kLlmC, TokenFormat::kMegatron};
constexpr std::int64_t kSmall = 50257, kLarge = 128256;

using Documents = std::vector<std::vector<TokenId>>;

// 0, 1, 17 and some more documents, with the largest id in the last.
Documents some_documents(std::int64_t vocabulary) {
  Documents documents = {{}, {3}, std::vector<TokenId>(17), std::vector<TokenId>(1031)};
  std::iota(documents[2].begin(), documents[2].end(), 1);
  for (std::size_t i = 0; i < documents[3].size(); ++i) {
    documents[3][i] = static_cast<TokenId>(i * 97 % static_cast<std::size_t>(vocabulary));
  }
  documents[3].back() = static_cast<TokenId>(vocabulary - 1);
  return documents;
}

std::vector<TokenId> joined(const Documents& documents) {
  std::vector<TokenId> all;
  for (const auto& one : documents) all.insert(all.end(), one.begin(), one.end());
  return all;
}

void write(const std::filesystem::path& path, const TokenWriterSetup& setup,
           const Documents& documents) {
  TokenWriter writer(path, setup);
  for (const auto& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
}

std::vector<TokenId> read_all(const TokenFile& file, std::int64_t limit = kLargestVocabulary) {
  std::vector<TokenId> ids(file.size());
  file.read(0, ids, limit);
  return ids;
}

template <class Function>
std::string refusal(ErrorCode code, Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

std::string refusal_to_open(const std::filesystem::path& path) {
  const std::string text = refusal(ErrorCode::kProtocol, [&] { const TokenFile file(path); });
  EXPECT_THAT(text, HasSubstr(path.stem().string()));
  return text;
}

template <class T>
std::string raw(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

// Changes a number in a copy of the bytes.
template <class T>
std::string with(std::string bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

// The same file as lockstep wrote it before it had checksums.
std::string without_checksums(std::string bytes) {
  TokensHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes.resize(document_ends_begin(header.tokens, static_cast<int>(header.bytes_per_token)) +
               8 * header.documents);
  return with(std::move(bytes), 8, TokensHeader::kVersionWithoutChecksums);
}

TEST(TokenFiles, EveryFormatAndWidthGivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  for (const TokenFormat format : kAllFormats) {
    for (const std::int64_t vocabulary : {kSmall, kLargestVocabularyOfTwoBytes, kLarge}) {
      if (format == TokenFormat::kNanoGpt && vocabulary == kLarge) continue;
      const Documents documents = some_documents(vocabulary);
      const auto path = folder / (format == TokenFormat::kLockstep ? "a.tokens" : "a.bin");
      write(path, {.format = format, .vocabulary = vocabulary}, documents);
      const TokenFile file(path);
      EXPECT_EQ(file.format(), format);
      EXPECT_EQ(file.path(), path);
      EXPECT_EQ(file.bytes_per_token(), vocabulary == kLarge ? 4 : 2);
      EXPECT_EQ(read_all(file), joined(documents));
      EXPECT_EQ(file.vocabulary(), format == TokenFormat::kLockstep ? vocabulary : 0);
      if (format == TokenFormat::kMegatron) std::filesystem::remove(folder / "a.idx");
      if (format != TokenFormat::kLockstep && format != TokenFormat::kMegatron) continue;
      ASSERT_EQ(file.documents(), documents.size());
      std::uint64_t first = 0;
      for (std::size_t i = 0; i < documents.size(); ++i) {
        EXPECT_EQ(file.document(i).first, first);
        EXPECT_EQ(file.document(i).end, first += documents[i].size());
      }
      EXPECT_THROW(file.document(documents.size()), Error);
    }
  }
}

TEST(TokenFiles, AMegatronDatasetHasThreeNames) {
  const TemporaryFolder folder;
  write(folder / "a", {.format = TokenFormat::kMegatron, .vocabulary = 10}, {{1, 2}, {3}});
  EXPECT_THAT(folder.names(), ElementsAre("a.bin", "a.idx"));
  for (const char* name : {"a", "a.bin", "a.idx"}) {
    const TokenFile file(folder / name);
    EXPECT_EQ(file.format(), TokenFormat::kMegatron);
    EXPECT_THAT(read_all(file), ElementsAre(1, 2, 3));
  }
}

TEST(TokenFiles, RemembersItsTokenizer) {
  const TemporaryFolder folder;
  const std::string hash = content_hash("{}");
  write(folder / "a.tokens", {.vocabulary = 10, .tokenizer_hash = hash}, {{1}});
  EXPECT_EQ(TokenFile(folder / "a.tokens").tokenizer_hash(), hash);
  write(folder / "b.tokens", {.vocabulary = 10}, {{1}});
  EXPECT_EQ(TokenFile(folder / "b.tokens").tokenizer_hash(), "");
}

TEST(TokenFiles, AWriterThatDoesNotFinishLeavesWhatWasThere) {
  const TemporaryFolder folder;
  folder.put("a.tokens", "old");
  {
    TokenWriter writer(folder / "a.tokens", {.vocabulary = 10});
    writer.append(std::vector<TokenId>(1 << 20, 7));
  }
  EXPECT_THAT(folder.names(), ElementsAre("a.tokens"));
  EXPECT_EQ(TemporaryFolder::bytes_of(folder / "a.tokens"), "old");
  {
    TokenWriter writer(folder / "a.tokens", {.vocabulary = 10});
    EXPECT_THROW(writer.append(std::vector<TokenId>{1, 10}), Error);
    EXPECT_THROW(writer.append(std::vector<TokenId>{-1}), Error);
  }
  EXPECT_THAT(folder.names(), ElementsAre("a.tokens"));
}

TEST(TokenFiles, AWriterSaysWhatItCannotWrite) {
  const TemporaryFolder folder;
  const auto write_to = [&](const char* name, TokenFormat format, std::int64_t vocabulary) {
    return [=, &folder] {
      const TokenWriter writer(folder / name, {.format = format, .vocabulary = vocabulary});
    };
  };
  constexpr auto kArgument = ErrorCode::kInvalidArgument;
  EXPECT_THAT(refusal(kArgument, write_to("a.bin", TokenFormat::kNanoGpt, kLarge)),
              HasSubstr("ids of 2 bytes"));
  EXPECT_THAT(refusal(kArgument, write_to("a.tokens", TokenFormat::kNanoGpt, 10)),
              HasSubstr("must end in .bin"));
  EXPECT_THAT(refusal(kArgument, write_to("a.tokens", TokenFormat::kLockstep, 0)),
              HasSubstr("vocabulary of 0"));
  EXPECT_THAT(refusal(ErrorCode::kSystem, write_to("no/a.tokens", TokenFormat::kLockstep, 10)),
              AllOf(HasSubstr("cannot write"), HasSubstr("no/a.tokens")));
  EXPECT_THAT(refusal(kArgument, write_to(".", TokenFormat::kLockstep, 10)),
              HasSubstr("not a regular file"));
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(TokenFiles, ReadingOutOfTheFileOrTheVocabularyNamesThePosition) {
  const TemporaryFolder folder;
  const TokenFile file(folder.put("a.bin", raw<std::uint16_t>({5, 6, 700, 8})));
  std::vector<TokenId> two(2);
  file.read(2, two, 701);
  EXPECT_THAT(two, ElementsAre(700, 8));
  file.read(4, std::span<TokenId>(), 1);
  const auto read = [&](std::uint64_t first, std::int64_t limit) {
    return refusal(ErrorCode::kInvalidArgument,
                   [&, first, limit] { file.read(first, two, limit); });
  };
  EXPECT_THAT(read(1, 700),
              AllOf(HasSubstr("token 2 of"), HasSubstr("is 700"), HasSubstr("below 700")));
  EXPECT_THAT(read(3, 1000), HasSubstr("has 4 tokens; cannot read 2 from 3 on"));
  EXPECT_THAT(read(~std::uint64_t{0}, 1000), HasSubstr("has 4 tokens"));
  // A file's own vocabulary holds as well, and an id of 32 bits is no negative one.
  write(folder / "b.tokens", {.vocabulary = kLarge}, {{1, 2}});
  const std::string bytes = without_checksums(TemporaryFolder::bytes_of(folder / "b.tokens"));
  const TokenFile wide(folder.put("c.tokens", with(bytes, 68, ~std::uint32_t{0})));
  EXPECT_THAT(
      refusal(ErrorCode::kInvalidArgument, [&] { read_all(wide); }),
      AllOf(HasSubstr("token 1 of"), HasSubstr("is 4294967295"), HasSubstr("below 128256")));
}

// Reading a mapped file behind its end would end the process with SIGBUS.
TEST(TokenFiles, AFileThatIsCutWhileItIsReadIsAnError) {
  const TemporaryFolder folder;
  for (const std::size_t tokens : {std::size_t{100}, std::size_t{1} << 20}) {
    for (const TokenFormat format : kAllFormats) {
      const auto path = folder / (std::string(name(format)) + ".bin");
      write(path, {.format = format, .vocabulary = kSmall}, {std::vector<TokenId>(tokens, 7)});
      const TokenFile file(path);
      EXPECT_EQ(read_all(file).back(), 7);
      std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) / 2);
      EXPECT_THAT(refusal(ErrorCode::kProtocol, [&] { read_all(file); }),
                  HasSubstr("became shorter"));
      if (file.documents() == 0) continue;
      EXPECT_THAT(refusal(ErrorCode::kProtocol, [&] { file.document(0); }),
                  HasSubstr("became shorter"));
    }
  }
}

TEST(TokenFiles, WhatIsNoTokenFileIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(refusal_to_open(folder.put("empty.bin", "")), HasSubstr("is empty"));
  EXPECT_THAT(refusal_to_open(folder.put("odd.bin", "abc")), HasSubstr("odd number of bytes, 3"));
  EXPECT_THAT(refusal_to_open(folder.put("a.txt", "ab")), HasSubstr("data.text"));
  EXPECT_THAT(refusal_to_open(folder.put("cut.tokens", "LOCKTOKS1")), HasSubstr("9 bytes"));
  EXPECT_THAT(refusal(ErrorCode::kSystem, [&] { const TokenFile file(folder / "none.bin"); }),
              HasSubstr("none.bin"));
  EXPECT_THAT(refusal(ErrorCode::kInvalidArgument, [&] { const TokenFile file(folder.path()); }),
              HasSubstr("is a folder"));
}

TEST(TokenFiles, AHeaderOfTokensThatLiesIsRefused) {
  const TemporaryFolder folder;
  write(folder / "good.tokens", {.vocabulary = 10}, {{1, 2, 3}, {4}});
  const std::string checked = TemporaryFolder::bytes_of(folder / "good.tokens");
  ASSERT_EQ(checked.size(), 64u + 8 + 2 * 8 + 4 + 4);
  const std::string good = without_checksums(checked);
  ASSERT_EQ(good.size(), 64u + 8 + 2 * 8);
  const auto changed = [&](std::size_t offset, auto value) {
    return refusal_to_open(folder.put("bad.tokens", with(good, offset, value)));
  };
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  EXPECT_THAT(changed(8, 3u), HasSubstr("version 3"));
  EXPECT_THAT(changed(8, 2u), HasSubstr("not what"));  // it has no checksums
  EXPECT_THAT(changed(12, 3u), HasSubstr("3 bytes per token"));
  EXPECT_THAT(changed(16, std::uint64_t{0}), HasSubstr("vocabulary of 0"));
  EXPECT_THAT(changed(16, kHuge), HasSubstr("vocabulary"));
  EXPECT_THAT(changed(24, kHuge), HasSubstr("not what"));
  EXPECT_THAT(changed(24, kHuge / 2 + 1), HasSubstr("not what"));  // times 2 it would be 0
  EXPECT_THAT(changed(32, kHuge / 8 + 1), HasSubstr("not what"));
  EXPECT_THAT(changed(24, std::uint64_t{3}), HasSubstr("last document ends at 4"));
  EXPECT_THAT(refusal_to_open(folder.put("bad.tokens", good.substr(0, good.size() - 1))),
              HasSubstr("not what"));
  EXPECT_THAT(refusal_to_open(folder.put("bad.tokens", good + "x")), HasSubstr("not what"));
  // Ends that do not rise are found when a document is asked for.
  const TokenFile file(folder.put("bad.tokens", with(good, 72, kHuge)));
  EXPECT_THAT(refusal(ErrorCode::kProtocol, [&] { file.document(0); }), HasSubstr("document 0"));
  EXPECT_THAT(refusal(ErrorCode::kProtocol, [&] { file.document(1); }), HasSubstr("document 1"));
}

TEST(TokenFiles, FilesWithoutChecksumsAreRead) {
  const TemporaryFolder folder;
  const Documents documents = some_documents(kLarge);
  write(folder / "a.tokens", {.vocabulary = kLarge}, documents);
  EXPECT_EQ(TokenFile(folder / "a.tokens").checksums(), 1u);
  const std::string older = without_checksums(TemporaryFolder::bytes_of(folder / "a.tokens"));
  const TokenFile file(folder.put("older.tokens", older));
  EXPECT_EQ(file.checksums(), 0u);
  EXPECT_EQ(read_all(file), joined(documents));
  EXPECT_EQ(file.document(3).end, file.size());
}

// Whatever byte it is: of the header, ids, padding, ends of documents, or the checksums themselves.
TEST(TokenFiles, AnyChangedByteIsFound) {
  const TemporaryFolder folder;
  write(folder / "good.tokens", {.vocabulary = 10}, {{1, 2, 3}, {4, 5}});
  const std::string good = TemporaryFolder::bytes_of(folder / "good.tokens");
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int bit : {0x01, 0x80}) {
      const auto path = folder.put("bad.tokens", with(good, at, static_cast<char>(good[at] ^ bit)));
      EXPECT_THROW(TokenFile{path}, Error) << at;
    }
  }
}

// Of a file with `blocks` blocks and a bit more; ids are not those of a pattern of 64 KiB.
std::string file_of_blocks(const TemporaryFolder& folder, std::size_t blocks) {
  std::vector<TokenId> ids(blocks * kBlockBytes / 2 + 100);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i * 7919 % kSmall);
  write(folder / "good.tokens", {.vocabulary = kSmall}, {ids, {1}});
  return TemporaryFolder::bytes_of(folder / "good.tokens");
}

TEST(TokenFiles, AChangedByteIsNamedWithItsBlock) {
  const TemporaryFolder folder;
  constexpr std::size_t kBlocks = 5;
  const std::string good = file_of_blocks(folder, kBlocks - 1);
  EXPECT_EQ(TokenFile(folder / "good.tokens").checksums(), kBlocks);
  const std::size_t end = good.size() - 4 * (kBlocks + 1);
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const std::size_t first = 64 + block * kBlockBytes;
    const std::size_t last = std::min(first + kBlockBytes, end) - 1;
    for (const std::size_t at : {first, (first + last) / 2, last}) {
      const std::string bad = with(good, at, static_cast<char>(good[at] ^ 0x10));
      EXPECT_THAT(refusal_to_open(folder.put("bad.tokens", bad)),
                  AllOf(HasSubstr("bad.tokens is damaged"),
                        HasSubstr(fmt::format("block {} of {}, bytes {} to {}", block, kBlocks,
                                              first, last)),
                        HasSubstr("lockstep tokenize")));
    }
  }
}

// Where there are too many blocks to compare all of them when the file is opened.
TEST(TokenFiles, ABlockIsComparedWhenItIsFirstReadAndNotAgain) {
  const TemporaryFolder folder;
  const std::string good = file_of_blocks(folder, 200);
  constexpr std::size_t kBlock = 100;  // not in the sample
  constexpr std::uint64_t kFirst = kBlock * kBlockBytes / 2;
  const std::size_t at = 64 + kBlock * kBlockBytes + 1000;
  const auto path = folder.put("bad.tokens", with(good, at, static_cast<char>(good[at] ^ 1)));
  const TokenFile file(path);
  std::vector<TokenId> ids(64);
  file.read(kFirst - ids.size(), ids, kSmall);
  file.read(kFirst + kBlockBytes / 2, ids, kSmall);
  file.document(0);
  for (int again = 0; again < 2; ++again) {
    // Its first and its last token, and a sequence that ends in it.
    for (const std::uint64_t first : {kFirst, kFirst + kBlockBytes / 2 - 1, kFirst - 63}) {
      EXPECT_THAT(refusal(ErrorCode::kProtocol, [&] { file.read(first, ids, kSmall); }),
                  AllOf(HasSubstr("bad.tokens is damaged"), HasSubstr("block 100 of 201")));
    }
  }
  const TokenFile whole(folder / "good.tokens");
  whole.read(kFirst, ids, kSmall);
  {
    std::fstream change(folder / "good.tokens", std::ios::in | std::ios::out | std::ios::binary);
    change.seekp(64 + kBlock * kBlockBytes);
    change.put(static_cast<char>(good[64 + kBlock * kBlockBytes] ^ 1));
  }
  std::vector<TokenId> later(64);
  whole.read(kFirst, later, kSmall);
  EXPECT_EQ(later[0], ids[0] ^ 1);
}

TEST(TokenFiles, AHeaderOfLlmCThatLiesIsRefused) {
  const TemporaryFolder folder;
  write(folder / "good.bin", {.format = TokenFormat::kLlmC, .vocabulary = 10}, {{1, 2, 3}});
  const std::string good = TemporaryFolder::bytes_of(folder / "good.bin");
  ASSERT_EQ(good.size(), 1024u + 6);
  const auto changed = [&](std::size_t offset, std::int32_t value) {
    return refusal_to_open(folder.put("bad.bin", with(good, offset, value)));
  };
  EXPECT_THAT(changed(0, LlmCHeader::kMagicOfEvaluation), HasSubstr("questions"));
  EXPECT_THAT(changed(4, 7), HasSubstr("version 7"));
  EXPECT_THAT(changed(8, 4), HasSubstr("says it has 4 tokens"));
  EXPECT_THAT(changed(8, -3), HasSubstr("says it has -3 tokens"));
  EXPECT_THAT(refusal_to_open(folder.put("bad.bin", good.substr(0, 100))), HasSubstr("100 bytes"));
}

TEST(TokenFiles, AMegatronIndexThatLiesIsRefused) {
  const TemporaryFolder folder;
  write(folder / "good", {.format = TokenFormat::kMegatron, .vocabulary = 10}, {{1, 2}, {3, 4, 5}});
  const std::string index = TemporaryFolder::bytes_of(folder / "good.idx");
  const std::string ids = TemporaryFolder::bytes_of(folder / "good.bin");
  ASSERT_EQ(index.size(), 34u + 2 * 12 + 3 * 8);
  const auto changed = [&](std::size_t offset, auto value) {
    folder.put("bad.idx", with(index, offset, value));
    return refusal_to_open(folder.put("bad.bin", ids));
  };
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  EXPECT_THAT(changed(9, std::uint64_t{2}), HasSubstr("version 2"));
  EXPECT_THAT(changed(17, std::uint8_t{7}), HasSubstr("type 7"));
  EXPECT_THAT(changed(18, kHuge), HasSubstr("too few"));
  EXPECT_THAT(changed(18, kHuge / 12 + 2), HasSubstr("too few"));
  EXPECT_THAT(changed(26, kHuge), HasSubstr("too few"));
  EXPECT_THAT(changed(34 + 4, 7), HasSubstr("last sequence begins at 2 and has 7"));
  EXPECT_THAT(changed(34 + 8 + 8, std::int64_t{-2}), HasSubstr("sequence 1 lies at byte -2"));
  EXPECT_THAT(changed(34 + 8 + 8, std::int64_t{3}), HasSubstr("sequence 1 lies at byte 3"));
  folder.put("bad.idx", index);
  EXPECT_THAT(refusal_to_open(folder.put("bad.bin", ids + "x")), HasSubstr("not a whole number"));
  folder.put("bad.idx", with(index, 34 + 24 + 8, std::int64_t{3}));
  const TokenFile file(folder.put("bad.bin", ids));
  EXPECT_THAT(refusal(ErrorCode::kProtocol, [&] { file.document(0); }), HasSubstr("begins at 3"));
}

}  // namespace
}  // namespace lockstep::data::token_file_test
