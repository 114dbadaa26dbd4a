#include <gtest/gtest.h>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/data/tokenizer/wordpiece_normalizer.h"
#include "lockstep/data/unicode/unicode.h"

namespace lockstep::data::wordpiece_test {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> small() {
  return parse_tokenizer(R"({
    "added_tokens": [{"id": 2, "content": "[MASK]", "special": true, "lstrip": true}],
    "normalizer": {"type": "BertNormalizer"},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "max_input_chars_per_word": 10,
      "vocab": {"[PAD]": 0, "[UNK]": 1, "[MASK]": 2, "un": 3, "unhappy": 4, "##happy": 5,
                "##ily": 6, "u": 7, "##n": 8, "!": 9, "é": 10, "e": 11, "狐": 12}}})",
                         "test");
}

Ids encoded(std::string_view text) {
  Ids ids;
  small()->encode(text, ids);
  return ids;
}

TEST(WordPiece, TakesTheLongestTokenFirst) {
  EXPECT_EQ(encoded("unhappy"), (Ids{4}));
  EXPECT_EQ(encoded("unhappily"), (Ids{1}));  // "unhappy" is no front of it; "un" leaves "happily"
  EXPECT_EQ(encoded("ununun"), (Ids{1}));     // there is no "##u"
  EXPECT_EQ(encoded("unn"), (Ids{3, 8}));
  EXPECT_EQ(encoded("unhappyily"), (Ids{4, 6}));
}

TEST(WordPiece, AWordThatIsTooLongIsUnknown) {
  EXPECT_EQ(encoded("unnnnnnnnn"), (Ids{3, 8, 8, 8, 8, 8, 8, 8, 8}));
  EXPECT_EQ(encoded("unnnnnnnnnn"), (Ids{1}));
}

TEST(WordPiece, CaseAccentsAndControlsAreLost) {
  EXPECT_EQ(encoded("UN\u0000HAPPY\u200b É\xff!"), (Ids{3}));  // a literal ends at its first NUL
  EXPECT_EQ(encoded("Un\u00adhappy É\xff! 狐狐"), (Ids{4, 11, 9, 12, 12}));
}

TEST(WordPiece, AnAddedTokenTakesItsBlanks) {
  EXPECT_EQ(encoded("un \t [MASK]un"), (Ids{3, 2, 3}));
  EXPECT_EQ(encoded("[mask]").front(), 1);
}

TEST(WordPiece, DecodesWordsWithBlanks) {
  std::string text;
  small()->decode(Ids{4, 6, 9, 3, 8}, text);
  EXPECT_EQ(text, "unhappyily! unn");
  EXPECT_EQ(small()->special(Special::kPadding), 0);
  EXPECT_EQ(small()->special(Special::kUnknown), 1);
  EXPECT_EQ(small()->special(Special::kMask), 2);
  EXPECT_EQ(small()->special(Special::kClassify), std::nullopt);
}

TEST(Unicode, LowerCaseMayBeLonger) {
  EXPECT_EQ(to_lower_case({U'A', U'É', U'İ', U'ẞ', U'Σ', U'a'}),
            (CodePoints{U'a', U'é', U'i', 0x307, U'ß', U'σ', U'a'}));
}

TEST(BertNormalizer, EachPartCanBeLeftOut) {
  const std::string text = "É\t狐\x01";
  EXPECT_EQ(BertNormalizer{}(text), "e  狐 ");
  EXPECT_EQ((BertNormalizer{false, false, false, false}(text)), text);
  EXPECT_EQ((BertNormalizer{false, false, false, true}(text)), "é\t狐\x01");
}

}  // namespace
}  // namespace lockstep::data::wordpiece_test
