// What is text, what is refused and what is warned of.
#include "lockstep/data/text/text_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data::text_kind_test {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::string& bytes) {
  try {
    refuse_unless_text(bytes, "a.txt");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(TextKind, Utf16AndUtf32AreRefusedWithWhatToDo) {
  EXPECT_THAT(refusal("\xff\xfe\x61\0b\0"s),
              AllOf(HasSubstr("a.txt is UTF-16"), HasSubstr("iconv -f UTF-16 -t UTF-8")));
  EXPECT_THAT(refusal("\xfe\xff\0a\0b"s), HasSubstr("UTF-16"));
  EXPECT_THAT(refusal("\xff\xfe\0\0a\0\0\0"s), HasSubstr("UTF-32"));
  // Without a mark.
  EXPECT_THAT(refusal("h\0e\0l\0l\0o\0 \0"s), HasSubstr("UTF-16"));
  EXPECT_THAT(refusal("\0h\0e\0l\0l\0o\0 "s), HasSubstr("UTF-16"));
}

TEST(TextKind, OtherFilesAreRefusedByName) {
  EXPECT_THAT(refusal("PK\x03\x04rest"), HasSubstr("a zip archive"));
  EXPECT_THAT(refusal("BZh91AY&SY rest"), HasSubstr("bzip2"));
  EXPECT_THAT(refusal(std::string(257, 'x') + "ustar  "), HasSubstr("a tar archive"));
  EXPECT_THAT(refusal("%PDF-1.7\n"), HasSubstr("a PDF"));
  EXPECT_THAT(refusal("PAR1 columns PAR1"), HasSubstr("a Parquet table"));
  EXPECT_THAT(refusal("\x7f"
                      "ELF\2\1\1"),
              HasSubstr("a program"));
}

TEST(TextKind, TextsAreTaken) {
  for (const std::string& text :
       {""s, "a"s, "plain\n"s, "\xef\xbb\xbfwith a mark"s, "\xc3\xa4\xe2\x82\xac"s, "PAR1S"s, "\0"s,
        "one \0 in a text"s, "Latin-1: \xe4\xf6\xfc"s}) {
    EXPECT_EQ(refusal(text), "") << text;
  }
}

TEST(TextKind, CountsWhatIsSeldomInAText) {
  TextFindings findings;
  add_findings("tab\tfeed\f line\r\n \xc3\xa4", "a.txt", 0, findings);
  EXPECT_FALSE(findings.any());
  add_findings("ab\x1b[31m\x7f", "a.txt", 100, findings);
  TextFindings later;
  add_findings("\0\xff\xc3(\xf0\x9f\x98\x80"s, "b.txt", 0, later);
  add_findings(later, findings);
  EXPECT_EQ(findings.nul, 1u);
  EXPECT_EQ(findings.control, 2u);
  EXPECT_EQ(findings.not_utf8, 2u);
  EXPECT_EQ(describe(findings),
            "the text has 1 NUL byte, 2 control characters, 2 bytes that are no UTF-8 (the first "
            "is byte 102 of a.txt), which are learned like all else");
}

}  // namespace
}  // namespace lockstep::data::text_kind_test
