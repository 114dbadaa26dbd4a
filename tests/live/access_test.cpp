#include "lockstep/live/access.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"

namespace lockstep::live {
namespace {

TEST(LiveAccess, TokensAreRandomAndLong) {
  const std::string token = make_token();
  EXPECT_EQ(token.size(), 32u);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(token, make_token());
}

TEST(LiveAccess, OnlyTheWholeTokenIsOne) {
  const std::string token = "0123456789abcdef";
  EXPECT_TRUE(is_token(token, token));
  for (const char* other : {"", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeg",
                            "0123456789ABCDEF", "x123456789abcdef"}) {
    EXPECT_FALSE(is_token(other, token)) << other;
  }
  EXPECT_FALSE(is_token("", "")) << "without a token nobody is let in";
}

TEST(LiveAccess, HostsAreThisMachine) {
  const std::vector<std::string> names = {"node0", "node0.example"};
  for (const char* header :
       {"localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:80", "[::1]",
        "[::1]:8080", "10.1.2.3:9", "node0", "NODE0:8080", "node0.example:1"}) {
    EXPECT_TRUE(is_known_host(header, names)) << header;
  }
  for (const char* header :
       {"", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example",
        "localhost:", "localhost:x", "localhost:8080:1", "[::1", "[::1]x", "[::1]:", "[node0]",
        "node0.evil", "localhost/", "localhost:123456", ":80", "127.0.0.1@evil.example", "0x7f.1",
        "::1"}) {
    EXPECT_FALSE(is_known_host(header, names)) << header;
  }
}

TEST(LiveAccess, ATokenFileIsMadeOnceAndIsItsOwners) {
  const ScratchFolder folder;
  const auto path = folder.path() / "token";
  const std::string token = token_of_file(path);
  EXPECT_EQ(token.size(), 32u);
  EXPECT_EQ(token_of_file(path), token);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  for (const char* text : {"", "short\n", "with blanks in the token\n", "0123456789abcdef/..\n"}) {
    write_file(path, text);
    EXPECT_THROW(token_of_file(path), Error) << text;
  }
  write_file(path, "a-token_of-my_own-0\nmore\n");
  EXPECT_EQ(token_of_file(path), "a-token_of-my_own-0");
}

}  // namespace
}  // namespace lockstep::live
