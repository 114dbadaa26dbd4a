#include "lockstep/base/net/host_port.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(HostPort, ReadsNamesAndBothKindsOfAddress) {
  EXPECT_EQ(parse_host_port("node0:29400"), (HostPort{"node0", 29400}));
  EXPECT_EQ(parse_host_port("127.0.0.1:0"), (HostPort{"127.0.0.1", 0}));
  EXPECT_EQ(parse_host_port("[::1]:65535"), (HostPort{"::1", 65535}));
}

TEST(HostPort, WritesWhatItReads) {
  for (const char* text : {"node0:29400", "[fe80::1%eth0]:1", "10.0.0.2:80"}) {
    EXPECT_EQ(format_host_port(parse_host_port(text)), text);
  }
}

TEST(HostPort, RefusesWhatIsNoAddress) {
  for (const char* text : {"", "node0", "node0:", ":80", "node0:65536", "node0:-1", "node0:80x",
                           "::1:80", "[::1]", "[::1]80", "[]:80"}) {
    EXPECT_THROW(parse_host_port(text), Error) << text;
  }
}

TEST(HostPort, KnowsTheLoopback) {
  EXPECT_TRUE(is_loopback("localhost"));
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
}

}  // namespace
}  // namespace lockstep
