// Texts that are packed by gzip and zstd.
#include "lockstep/data/text/packed_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/text/text_files.h"
#include "lockstep/data/text/text_pieces.h"
#include "tests/data/temporary_folder.h"

namespace lockstep::data::packed_text_test {
namespace {

using fixtures::TemporaryFolder;
using ::testing::HasSubstr;

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);  // as the command does
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return packed;
}

std::string opened(const std::filesystem::path& path) {
  const std::filesystem::path paths[] = {path};
  return std::string(open_text(list_text_files(paths).front())->view());
}

std::string refusal_of(const std::filesystem::path& path) {
  try {
    opened(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(PackedTexts, ComeUnpackedWhateverTheirName) {
  const TemporaryFolder folder;
  // Also of the very size of a block, and of several.
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{1} << 20, (std::size_t{3} << 20) + 17}) {
    std::string text(size, 'a');
    for (std::size_t i = 0; i < size; i += 7) text[i] = static_cast<char>('b' + i % 13);
    EXPECT_TRUE(opened(folder.put("a.txt.gz", gzip(text))) == text) << size;
    EXPECT_TRUE(opened(folder.put("b", zstd(text))) == text) << size;
  }
  EXPECT_EQ(opened(folder.put("several.gz", gzip("one ") + gzip("two"))), "one two");
  EXPECT_EQ(opened(folder.put("padded.gz", gzip("one") + std::string(9, '\0'))), "one");
  EXPECT_EQ(opened(folder.put("several.zst", zstd("one ") + zstd("two"))), "one two");
}

TEST(PackedTexts, ThatAreDamagedOrNoTextsAreErrors) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += std::to_string(i * i);
  for (const auto& packed : {gzip(text), zstd(text)}) {
    EXPECT_THAT(refusal_of(folder.put("cut", packed.substr(0, packed.size() / 2))),
                HasSubstr("ends early"));
    std::string damaged = packed;
    for (std::size_t i = 100; i < 140; ++i) damaged[i] = static_cast<char>(~damaged[i]);
    EXPECT_THAT(refusal_of(folder.put("damaged", damaged)), HasSubstr("cannot be unpacked"));
  }
  EXPECT_THAT(refusal_of(folder.put("pdf.gz", gzip("%PDF-1.4 x"))), HasSubstr("is a PDF"));
}

// The part that is held back is one of the text, and not of the packed bytes.
TEST(PackedTexts, CountAsMuchAsTheirTexts) {
  const TemporaryFolder folder;
  const std::filesystem::path paths[] = {folder.put("a.gz", gzip(std::string(10'000, 'x'))),
                                         folder.put("b", "yy")};
  TextPieces pieces(list_text_files(paths), {.validation = 0.5});
  EXPECT_EQ(pieces.bytes(), 10'002u);
}

}  // namespace
}  // namespace lockstep::data::packed_text_test
