#include "lockstep/bench/collectives/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::bench {
namespace {

Measurement measured(const std::string& name, bool is_peer, std::size_t bytes, double seconds) {
  Measurement one{.implementation = {.name = name, .job = name.substr(0, 4), .is_peer = is_peer},
                  .bytes = bytes,
                  .ranks = 2,
                  .algorithm = "ring"};
  if (seconds > 0) one.samples = {seconds, seconds, seconds};
  return one;
}

TEST(CompareWithPeers, TakesTheFastestCorrectPeer) {
  std::vector<Measurement> all{measured("lockstep-symmetric", false, 8, 1e-6),
                               measured("gloo-ring", true, 8, 4e-6),
                               measured("mpich", true, 8, 2e-6), measured("wrong", true, 8, 1e-9)};
  all.back().problem = "wrong result";
  compare_with_peers(all);
  EXPECT_DOUBLE_EQ(*all[0].ratio_to_fastest_peer, 2);
  EXPECT_DOUBLE_EQ(*all[0].ratio_to_fastest_gloo, 4);
  EXPECT_DOUBLE_EQ(*all[1].ratio_to_fastest_peer, 0.5);
  EXPECT_FALSE(all[3].ratio_to_fastest_peer);
}

TEST(CompareWithPeers, SaysNothingWithoutPeers) {
  std::vector<Measurement> all{measured("lockstep-symmetric", false, 8, 1e-6)};
  compare_with_peers(all);
  EXPECT_FALSE(all[0].ratio_to_fastest_peer);
}

TEST(Json, HasAnObjectPerResultWithTheKeysThatProgramsRead) {
  std::vector<Measurement> all{measured("lockstep-private", false, 1024, 1e-6),
                               measured("openmpi", true, 1024, 3e-6),
                               measured("mpich", true, 1024, 0)};
  all[2].problem = "mpich lost rank 1";
  compare_with_peers(all);
  const auto array = nlohmann::json::parse(to_json(all));
  ASSERT_EQ(array.size(), 3u);
  EXPECT_EQ(array[0]["implementation"], "lockstep-private");
  EXPECT_EQ(array[0]["op"], "all_reduce");
  EXPECT_EQ(array[0]["ranks"], 2);
  EXPECT_EQ(array[0]["bytes"], 1024);
  EXPECT_EQ(array[0]["dtype"], "f32");
  EXPECT_EQ(array[0]["algorithm"], "ring");
  EXPECT_DOUBLE_EQ(array[0]["median_us"], 1);
  EXPECT_EQ(array[0]["correct"], true);
  EXPECT_DOUBLE_EQ(array[0]["ratio_to_fastest_peer"], 3);
  EXPECT_TRUE(array[2]["median_us"].is_null());
  EXPECT_EQ(array[2]["correct"], false);
  EXPECT_EQ(array[2]["problem"], "mpich lost rank 1");
}

TEST(Summary, GivesMinimumAndGeomeanOfOurOwn) {
  std::vector<Measurement> table;
  for (const auto& [bytes, peer] : {std::pair{std::size_t{8}, 2e-6}, {std::size_t{64}, 8e-6}}) {
    std::vector<Measurement> size{measured("lockstep-symmetric", false, bytes, 1e-6),
                                  measured("mpich", true, bytes, peer)};
    compare_with_peers(size);
    table.insert(table.end(), size.begin(), size.end());
  }
  const std::string text = summary(table);
  EXPECT_NE(text.find("geomean 4.00, min 2.00 at 8 B, over 2 sizes"), std::string::npos) << text;
  EXPECT_NE(text.find("8 B to 64 B: ring"), std::string::npos) << text;
  EXPECT_EQ(text.find("mpich"), std::string::npos) << text;
}

TEST(StreamingShare, CountsAReadAndAWriteOfEveryRank) {
  const std::vector<Measurement> table{measured("lockstep-symmetric", false, 1000, 1e-6)};
  const Streaming streaming{.threads = 2, .copy = 8e9, .triad = 6e9};
  EXPECT_NE(streaming_share(table, streaming).find("50 %"), std::string::npos);
  EXPECT_EQ(streaming_share({}, streaming), "");
  const Streaming larger{.threads = 2, .array_bytes = 4096, .copy = 8e9, .triad = 6e9};
  EXPECT_EQ(streaming_share(table, larger), "");
}

}  // namespace
}  // namespace lockstep::bench
