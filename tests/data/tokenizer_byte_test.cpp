#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data::byte_test {
namespace {

std::string all_bytes() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes;
}

std::vector<TokenId> encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, ids);
  return ids;
}

std::string round_trip(const Tokenizer& tokenizer, std::string_view text) {
  std::string back;
  tokenizer.decode(encoded(tokenizer, text), back);
  return back;
}

TEST(ByteTokenizer, IdsAreTheBytes) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->vocabulary(), 256);
  EXPECT_EQ(encoded(*tokenizer, "a\xff"), (std::vector<TokenId>{97, 255}));
  EXPECT_EQ(round_trip(*tokenizer, all_bytes()), all_bytes());
  EXPECT_EQ(tokenizer->special(Special::kEndOfText), std::nullopt);
}

TEST(ByteTokenizer, AppendsToWhatIsThere) {
  const auto tokenizer = make_byte_tokenizer();
  std::vector<TokenId> ids{7};
  tokenizer->encode("", ids);
  tokenizer->encode("b", ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{7, 98}));
  std::string text = "x";
  tokenizer->decode(std::span(ids).subspan(1), text);
  EXPECT_EQ(text, "xb");
}

TEST(ByteTokenizer, AnIdOutOfRangeIsRefused) {
  const auto tokenizer = make_byte_tokenizer();
  std::string text;
  for (const TokenId id : {-1, 256}) {
    EXPECT_THROW(tokenizer->decode(std::vector<TokenId>{1, id}, text), Error);
    EXPECT_TRUE(text.empty());
  }
}

TEST(ByteTokenizer, ComesBackFromItsJson) {
  EXPECT_EQ(parse_tokenizer(make_byte_tokenizer()->json(), "test")->kind(), "byte");
}

TEST(CharacterTokenizer, IdsFollowTheCodePoints) {
  const auto tokenizer = make_character_tokenizer("zaé€😀a");
  EXPECT_EQ(tokenizer->vocabulary(), 5);
  EXPECT_EQ(encoded(*tokenizer, "a😀€éz"), (std::vector<TokenId>{0, 4, 3, 2, 1}));
}

TEST(CharacterTokenizer, BytesThatAreNoUtf8AreCharactersToo) {
  // A lone continuation, an overlong slash, a surrogate, the front of a character at the end.
  const std::string text = "a\x80 \xc0\xaf \xed\xa0\x80 \xf0\x9f\x98";
  const auto tokenizer = make_character_tokenizer(text);
  EXPECT_EQ(round_trip(*tokenizer, text), text);
  EXPECT_EQ(encoded(*tokenizer, " a\x80").size(), 3u);
}

TEST(CharacterTokenizer, ACharacterThatIsUnknownIsRefusedAndNothingIsAdded) {
  const auto tokenizer = make_character_tokenizer("ab");
  std::vector<TokenId> ids{5};
  try {
    tokenizer->encode("aé", ids);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("U+00E9"), std::string::npos) << error.what();
  }
  EXPECT_EQ(ids, std::vector<TokenId>{5});
  EXPECT_THROW(encoded(*make_character_tokenizer(""), "a"), Error);
}

TEST(CharacterTokenizer, ComesBackFromItsJson) {
  const std::string text = "b\n\"\\é😀\xff\x80" + all_bytes();
  const auto tokenizer = make_character_tokenizer(text);
  const auto back = parse_tokenizer(tokenizer->json(), "test");
  EXPECT_EQ(back->kind(), "character");
  EXPECT_EQ(encoded(*back, text), encoded(*tokenizer, text));
  EXPECT_EQ(parse_tokenizer(make_character_tokenizer("")->json(), "test")->vocabulary(), 0);
}

TEST(CharacterTokenizer, ADamagedFileIsRefused) {
  for (const char* json :
       {R"({"kind":"character"})", R"({"kind":"character","code_points":[1,1],"bytes":[]})",
        R"({"kind":"character","code_points":[2,1],"bytes":[]})",
        R"({"kind":"character","code_points":[1114112],"bytes":[]})",
        R"({"kind":"character","code_points":[55296],"bytes":[]})",
        R"({"kind":"character","code_points":[-1],"bytes":[]})",
        R"({"kind":"character","code_points":[],"bytes":[256]})",
        R"({"kind":"character","code_points":["a"],"bytes":[]})"}) {
    EXPECT_THROW(parse_tokenizer(json, "test"), Error) << json;
  }
}

}  // namespace
}  // namespace lockstep::data::byte_test
