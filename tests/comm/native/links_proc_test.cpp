// What is measured of the links is remembered, and nothing else; emulated ones are not measured.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/launch/launched.h"
#include "tests/paths.h"

namespace lockstep {
namespace {

using testing::Launched;
using testing::read_text;

// What rank 0 says of its choice when two ranks are joined by TCP and figures are kept in `cache`.
std::string choice_over_tcp(const std::filesystem::path& cache) {
  Launched job({"-n", "2", "--no-prefix", "--", in_build("tests/choice_program")},
               {"LOCKSTEP_COMM_TRANSPORT=tcp", "LOCKSTEP_COMM_CACHE_DIR=" + cache.string()});
  EXPECT_EQ(job.wait(), 0) << job.err();
  return job.out();
}

TEST(Links, AreMeasuredOnceAndThenRemembered) {
  const ScratchFolder folder;
  EXPECT_NE(choice_over_tcp(folder.path()).find("measured"), std::string::npos);
  const std::string first = read_text(folder.path() / "links.json");
  EXPECT_NE(choice_over_tcp(folder.path()).find("remembered"), std::string::npos);
  EXPECT_EQ(read_text(folder.path() / "links.json"), first);
}

TEST(Links, ThatWereOnlyAssumedAreNotRemembered) {
  const ScratchFolder folder;
  choice_over_tcp(folder.path());
  const auto cache = nlohmann::json::parse(read_text(folder.path() / "links.json"));
  ASSERT_EQ(cache.size(), 1u);
  const nlohmann::json entry = cache.begin().value();
  EXPECT_TRUE(entry.contains("outer"));
  EXPECT_FALSE(entry.contains("inner")) << "no two ranks shared memory";
}

TEST(Links, OfABrokenCacheAreMeasuredAnew) {
  const ScratchFolder folder;
  choice_over_tcp(folder.path());
  const std::string whole = read_text(folder.path() / "links.json");
  auto wrong = nlohmann::json::parse(whole);
  wrong.begin().value()["outer"] = {-1, "fast"};
  for (const std::string& broken :
       {whole.substr(0, whole.size() / 2), wrong.dump(), std::string("[]"), std::string()}) {
    std::ofstream(folder.path() / "links.json") << broken;
    EXPECT_NE(choice_over_tcp(folder.path()).find("measured"), std::string::npos) << broken;
  }
}

TEST(Links, ThatAreEmulatedAreSaidOnceAndNotMeasured) {
  const ScratchFolder folder;
  Launched job(
      {"-n", "3", "--no-prefix", "--", in_build("tests/choice_program")},
      {"LOCKSTEP_COMM_EMULATE=10Gbit,200us", "LOCKSTEP_COMM_CACHE_DIR=" + folder.path().string()});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_NE(job.out().find("links emulated as outer 200 us 1.25 GB/s"), std::string::npos)
      << job.out();
  EXPECT_NE(job.out().find("correct"), std::string::npos) << job.out();
  const std::string said = job.err();
  EXPECT_NE(said.find("rank 0: links are emulated"), std::string::npos) << said;
  EXPECT_EQ(said.find("links are emulated"), said.rfind("links are emulated")) << said;
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "links.json"));
}

}  // namespace
}  // namespace lockstep
