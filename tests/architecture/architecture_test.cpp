// The checks pass on the real tree, and each of them fails on a tree made for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/architecture/hygiene.h"
#include "tests/architecture/layers.h"
#include "tests/paths.h"

namespace lockstep::architecture {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

const std::vector<SourceFile>& real_tree() {
  static const std::vector<SourceFile> kFiles = read_sources(in_sources(""));
  return kFiles;
}

SourceFile including(std::string path, const std::string& include) {
  return {std::move(path), "// A file.\n#pragma once\n\n#  include \"" + include + "\"\n"};
}

TEST(Layers, EveryIncludeOfTheTreePointsDown) {
  ASSERT_GT(real_tree().size(), 20u) << "the sources were not found";
  EXPECT_THAT(layer_violations(real_tree()), IsEmpty());
}

TEST(Layers, IncludesThatPointDownAreFine) {
  EXPECT_THAT(
      layer_violations({including("lockstep/cli/train.cpp", "lockstep/train/loop.h"),
                        including("lockstep/train/loop.cpp", "lockstep/train/loop.h"),
                        including("lockstep/train/run/run.cpp", "lockstep/train/trainer/trainer.h"),
                        including("lockstep/comm/native/a.cpp", "lockstep/comm/schedule/ring.h"),
                        including("lockstep/comm/native/a.cpp", "lockstep/comm/call.h"),
                        including("lockstep/launch/a.cpp", "lockstep/comm/native/a.h"),
                        including("lockstep/comm/transport/a.h", "lockstep/comm/reduce/b.h"),
                        including("tests/base/error_test.cpp", "lockstep/cli/command.h")}),
      IsEmpty());
}

TEST(Layers, AnIncludeThatRunsUpIsFound) {
  EXPECT_THAT(layer_violations({including("lockstep/base/error.h", "lockstep/tensor/dtype.h")}),
              ElementsAre("lockstep/base/error.h includes lockstep/tensor/dtype.h, which is above "
                          "it"));
}

TEST(Layers, EachLayerMustNotIncludeTheOneAbove) {
  for (std::size_t level = 1; level < levels().size(); ++level) {
    const std::string above(levels()[level - 1].front());
    const std::string below(levels()[level].front());
    EXPECT_THAT(
        layer_violations({including("lockstep/" + below + "/a.h", "lockstep/" + above + "/b.h")}),
        SizeIs(1))
        << below << " includes " << above;
  }
}

TEST(Layers, PartsOfCommHaveTheirOwnOrder) {
  for (const auto& [path, include] : std::vector<std::pair<std::string, std::string>>{
           {"lockstep/comm/schedule/ring.cpp", "lockstep/comm/native/group.h"},
           {"lockstep/comm/call.h", "lockstep/comm/schedule/schedule.h"},
           {"lockstep/comm/shared/group.cpp", "lockstep/comm/native/world.h"},
           {"lockstep/comm/call.cpp", "lockstep/comm/mpi/mpi.h"}}) {
    EXPECT_THAT(layer_violations({including(path, include)}),
                ElementsAre(path + " includes " + include + ", which is above it"));
  }
}

TEST(Layers, ACircleOnALevelIsFound) {
  EXPECT_THAT(
      layer_violations({including("lockstep/comm/reduce/a.h", "lockstep/comm/schedule/b.h"),
                        including("lockstep/comm/schedule/b.h", "lockstep/comm/transport/c.h"),
                        including("lockstep/comm/transport/c.h", "lockstep/comm/reduce/a.h")}),
      UnorderedElementsAre("lockstep/comm/reduce uses itself in a circle",
                           "lockstep/comm/schedule uses itself in a circle",
                           "lockstep/comm/transport uses itself in a circle"));
}

TEST(Layers, ANewFolderNeedsAPlace) {
  EXPECT_THAT(layer_violations({{"lockstep/misc/a.h", ""}, {"lockstep/comm/misc/a.h", ""}}),
              ElementsAre("lockstep/misc/a.h has no place in the order of the layers",
                          "lockstep/comm/misc/a.h has no place in the order of the layers"));
  EXPECT_THAT(layer_violations({including("lockstep/cli/a.cpp", "lockstep/misc/a.h")}),
              ElementsAre(HasSubstr("which has no place")));
  EXPECT_THAT(layer_violations({{"lockstep/ops/reference/plain/gelu.h", ""}}), IsEmpty());
}

TEST(Hygiene, HoldsForTheTree) { EXPECT_THAT(hygiene_violations(real_tree()), IsEmpty()); }

TEST(Hygiene, ClangFormatKeepsDrawingsInComments) {
  std::ifstream stream(in_sources(".clang-format"));
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  EXPECT_TRUE(keeps_drawings(text));
  EXPECT_FALSE(keeps_drawings("BasedOnStyle: Google\nColumnLimit: 100\n"));
}

TEST(Hygiene, ADrawingThatIsTooWideIsFound) {
  const std::string wide = "//   " + std::string(kMostColumns, '-') + "\n";
  EXPECT_THAT(hygiene_violations({{"tests/a.cpp", "// A drawing:\n" + wide}}),
              ElementsAre("tests/a.cpp:2 is a drawing of 105 columns; draw it in 100"));
  EXPECT_THAT(hygiene_violations({{"tests/a.cpp", "//   " + std::string(95, '-') + "\n"}}),
              IsEmpty());
}

TEST(Hygiene, ALongFileIsFound) {
  EXPECT_THAT(hygiene_violations({{"tests/a_test.cpp", std::string(kMostLines, '\n')}}), IsEmpty());
  EXPECT_THAT(hygiene_violations({{"tests/a_test.cpp", std::string(kMostLines + 1, '\n')}}),
              ElementsAre("tests/a_test.cpp has 501 lines; split it"));
  const std::string table = "// Written by table.py.\n" + std::string(kMostLines, '\n');
  EXPECT_THAT(hygiene_violations({{"lockstep/data/table.cpp", table}}), IsEmpty());
}

TEST(Hygiene, AHeaderWithoutPragmaOnceIsFound) {
  EXPECT_THAT(hygiene_violations({{"bench/a.h", "// #pragma once\n"}}),
              ElementsAre("bench/a.h has no #pragma once"));
}

TEST(Hygiene, ExitIsFoundOutsideCli) {
  for (const char* code :
       {"exit(1);", "  std::exit(0);", "if (x) ::exit(2);", "a.exit(1), exit(1)"}) {
    EXPECT_THAT(hygiene_violations({{"lockstep/comm/a.cpp", code}}),
                ElementsAre(StartsWith("lockstep/comm/a.cpp calls exit()")))
        << code;
    EXPECT_THAT(hygiene_violations({{"lockstep/cli/a.cpp", code}}), IsEmpty()) << code;
  }
  for (const char* code : {"app.exit(error);", "_exit(127);", "// exit(1)", "on_exit(f);"}) {
    EXPECT_THAT(hygiene_violations({{"lockstep/comm/a.cpp", code}}), IsEmpty()) << code;
  }
}

TEST(Hygiene, AHeaderThatShowsAPrivateLibraryIsFound) {
  const std::string text = "// A.\n#pragma once\n#include <nlohmann/json.hpp>\n#include <vector>\n";
  EXPECT_THAT(hygiene_violations({{"lockstep/bench/a.h", text}}),
              ElementsAre("lockstep/bench/a.h includes <nlohmann/json.hpp>; only sources may"));
  EXPECT_THAT(hygiene_violations({{"lockstep/bench/a.cpp", text}, {"lockstep/cli/a.h", text}}),
              IsEmpty());
}

}  // namespace
}  // namespace lockstep::architecture
