#include "lockstep/base/text/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

TEST(Printable, LeavesWhatCanBeShown) {
  for (const std::string text : {"", "a\tb\nc", "grün 漢字 😀", "\xEF\xBF\xBD"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, ReplacesWhatCommandsATerminalOrIsNoText) {
  const std::string x = "\xEF\xBF\xBD";
  struct Case {
    std::string text;
    std::string shown;
  };
  const Case cases[] = {
      {"\x1b[31m", x + "[31m"},
      {std::string("a\0b", 3), "a" + x + "b"},
      {"\x7f\x08", x + x},
      {"a\r\nb\rc", "a\nb" + x + "c"},
      {"\xC2\x9B"
       "5A",
       x + "5A"},                // a terminal's command in one character
      {"\xC2\xA0", "\xC2\xA0"},  // the first that is none
      {"\xff\xfe", x + x},
      {"\xC3", x},  // cut short
      {"\xC3(", x + "("},
      {"\xE2\x82", x + x},
      {"\xC0\xAF", x + x},  // overlong
      {"\xE0\x80\xAF", x + x + x},
      {"\xED\xA0\x80", x + x + x},               // half of a pair
      {"\xF4\x90\x80\x80", x + x + x + x},       // beyond the last
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},  // the last
  };
  for (const Case& one : cases) EXPECT_EQ(printable(one.text), one.shown) << one.shown;
}

}  // namespace
}  // namespace lockstep
