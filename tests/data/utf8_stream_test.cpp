#include "lockstep/data/unicode/utf8_stream.h"

#include <gtest/gtest.h>

namespace lockstep::data::utf8_stream_test {
namespace {

// Characters of one, two, three and four bytes, the longest encoding.
constexpr std::string_view kCharacters = "a\u00e9\u20ac\U0001F600z";

TEST(Utf8Stream, NeverCutsACharacterWhereverItsBytesAreCut) {
  for (std::size_t first = 0; first <= kCharacters.size(); ++first) {
    for (std::size_t second = first; second <= kCharacters.size(); ++second) {
      Utf8Stream stream;
      std::string all;
      for (const auto piece :
           {kCharacters.substr(0, first), kCharacters.substr(first, second - first),
            kCharacters.substr(second)}) {
        const std::string text = stream.add(piece);
        all += text;
        // A cut is right where no continuation follows it.
        if (all.size() < kCharacters.size()) {
          EXPECT_NE(static_cast<unsigned char>(kCharacters[all.size()]) & 0xc0, 0x80);
        }
      }
      EXPECT_EQ(all, kCharacters);
      EXPECT_EQ(stream.finish(), "");
    }
  }
}

TEST(Utf8Stream, HoldsNothingBackThatIsComplete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.add("abc"), "abc");
  EXPECT_EQ(stream.add("\xe2\x82"), "");
  EXPECT_EQ(stream.add("\xac!"), "\u20ac!");
}

TEST(Utf8Stream, LetsBytesThroughThatAreNoCharacters) {
  Utf8Stream stream;
  EXPECT_EQ(stream.add("\x80\x81\xff"), "\x80\x81\xff");
  EXPECT_EQ(stream.add("\xe2"), "");
  EXPECT_EQ(stream.add("a"),
            "\xe2"
            "a");
  EXPECT_EQ(stream.add("x\xf0\x9f"), "x");
  EXPECT_EQ(stream.finish(), "\xf0\x9f");
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace lockstep::data::utf8_stream_test
