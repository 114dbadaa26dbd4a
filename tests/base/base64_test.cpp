#include "lockstep/base/text/base64.h"

#include <gtest/gtest.h>

namespace lockstep::base64_test {
namespace {

// RFC 4648's own examples.
TEST(Base64, IsRead) {
  EXPECT_EQ(from_base64(""), "");
  EXPECT_EQ(from_base64("Zg=="), "f");
  EXPECT_EQ(from_base64("Zm8="), "fo");
  EXPECT_EQ(from_base64("Zm9v"), "foo");
  EXPECT_EQ(from_base64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(from_base64("+/+/"), "\xfb\xff\xbf");
}

TEST(Base64, RefusesWhatIsNone) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zg===", "=", "====", "Zg==Zg==", "Zm9!", "Zm 9v",
                           "Zh==", "Zm9=", "-_-_", "A==="}) {
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace lockstep::base64_test
