#include "lockstep/base/net/link_emulation.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Moment = LinkPace::Time;

constexpr Moment kStart = Moment(100s);
constexpr double kGigabit = 125e6;  // bytes per second: 8 ns a byte

TEST(LinkEmulation, IsWrittenAsBandwidthAndDelay) {
  struct Case {
    const char* text;
    double rate;
    std::chrono::nanoseconds delay;
    const char* again;
  };
  const Case cases[] = {
      {"1Gbit,100us", kGigabit, 100us, "1Gbit,100us"},
      {"10Gbit", 1.25e9, 0ns, "10Gbit"},
      {"100Mbit,1ms", 12.5e6, 1ms, "100Mbit,1ms"},
      {"1GB/s", 1e9, 0ns, "8Gbit"},
      {" 2.5 Gbit/s , 1.5 us ", 312.5e6, 1500ns, "2.5Gbit,1.5us"},
      {"1Kbit,60s", 125, 60s, "1Kbit,60s"},
      {"3Gbit,17ns", 375e6, 17ns, "3Gbit,17ns"},
  };
  for (const Case& one : cases) {
    const LinkEmulation link = parse_link_emulation(one.text);
    EXPECT_DOUBLE_EQ(link.bytes_per_second, one.rate) << one.text;
    EXPECT_EQ(link.delay, one.delay) << one.text;
    EXPECT_EQ(to_text(link), one.again) << one.text;
    EXPECT_EQ(to_text(parse_link_emulation(to_text(link))), one.again) << one.text;
  }
}

TEST(LinkEmulation, OtherTextIsRefusedWithTheForm) {
  for (const char* text : {"", ",", "1Gbit,", ",1ms", "fast", "1Gbit,100", "1Gbit,1ms,2ms", "0Gbit",
                           "-1Gbit", "nanGbit", "infGbit", "1Gbit,2min", "1Gbit,-1us", "1G", "1",
                           "999bit", "1e300Gbit", "100us,1Gbit"}) {
    try {
      parse_link_emulation(text);
      ADD_FAILURE() << "'" << text << "' was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << text;
      EXPECT_NE(std::string(error.what()).find("1Gbit,100us"), std::string::npos) << error.what();
    }
  }
}

TEST(LinkPace, ThingsPassOneBehindTheOther) {
  LinkPace pace(kGigabit);
  EXPECT_EQ(pace.book(1000, kStart), kStart + 8us);
  EXPECT_EQ(pace.book(1000, kStart), kStart + 16us);  // waits for the line
  EXPECT_EQ(pace.free_at(), kStart + 16us);
  EXPECT_EQ(pace.book(17, kStart + 1ms), kStart + 1ms + 136ns);  // the line waited
  EXPECT_EQ(pace.book(0, kStart), kStart + 1ms + 136ns);
}

TEST(LinkPace, SmallBookingsTakeAsLongAsTheirSum) {
  const LinkEmulation link{3e9, 0ns};  // a third of a nanosecond a byte
  LinkPace pace(link.bytes_per_second);
  Moment last = kStart;
  for (int i = 0; i < 30'001; ++i) {
    const Moment passed = pace.book(1, kStart);
    EXPECT_GE(passed, last);
    last = passed;
  }
  EXPECT_GE(last, kStart + link.passage_time(30'001) - 1ns);
  EXPECT_LE(last, kStart + link.passage_time(30'001) + 1ns);
}

TEST(LinkPace, NothingPassesTooSoonWhereABookingIsForEver) {
  LinkPace pace(125);
  const Moment far = pace.book(std::size_t{1} << 60, kStart);
  EXPECT_GT(far, kStart + 24h * 365 * 50);
  EXPECT_EQ(pace.book(std::size_t{1} << 60, kStart), far);
  EXPECT_GT((LinkEmulation{125, 0ns}.passage_time(std::size_t{1} << 60)), 24h * 365 * 50);
}

TEST(LinkPace, ThreadsShareTheLine) {
  LinkPace pace(kGigabit);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) pace.book(17, kStart);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pace.free_at(), kStart + 4000 * 17 * 8ns);
}

// Two senders and one receiver: each sends at the full rate, the receiver takes them in turn.
TEST(LinkPace, WhatComesFromTwoNicsSharesTheThird) {
  const LinkEmulation link{kGigabit, 100us};
  LinkPace senders[] = {LinkPace(link.bytes_per_second), LinkPace(link.bytes_per_second)};
  LinkPace ingress(link.bytes_per_second);
  constexpr std::size_t kPiece = 1000;
  Moment arrived;
  for (int i = 0; i < 10; ++i) {
    for (LinkPace& egress : senders) {
      const Moment first = egress.book(kPiece, kStart) - link.passage_time(kPiece) + link.delay;
      arrived = ingress.book(kPiece, first);
    }
  }
  EXPECT_EQ(senders[0].free_at(), kStart + 10 * 8us);
  EXPECT_EQ(arrived, kStart + 100us + 20 * 8us);
}

}  // namespace
}  // namespace lockstep
