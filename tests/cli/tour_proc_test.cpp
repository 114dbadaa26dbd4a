// docs/tour.md and docs/mesh.md: every picture of a page is redrawn by the command that the page
// names, and has the same bytes. A picture that changes is drawn again by `./dev tour`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/file/scratch_folder.h"
#include "tests/cli/shell.h"
#include "tests/paths.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A page of pictures.
struct Page {
  std::string path;      // "docs/tour.md"
  std::string pictures;  // its folder from docs/, "images/tour/"
  std::size_t count;     // of its pictures
};
const std::vector<Page> kPages = {{"docs/tour.md", "images/tour/", 12},
                                  {"docs/mesh.md", "images/mesh/", 8}};

std::string content_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// A command of the page, on a line of its own.
struct TourCommand {
  std::string arguments;  // between "lockstep " and the file
  std::string picture;    // "ring.svg"
};

std::vector<TourCommand> commands_of(const Page& page, const std::string& text) {
  const std::regex command("\n *(?:\\$ )?lockstep (explain [^\n`]*--svg )docs/" + page.pictures +
                           "([a-z_-]+\\.svg)\n");
  std::vector<TourCommand> commands;
  for (std::sregex_iterator at(text.begin(), text.end(), command), end; at != end; ++at) {
    commands.push_back({(*at)[1], (*at)[2]});
  }
  return commands;
}

void expect_drawn_by_its_commands(const Page& page) {
  const std::string text = content_of(in_sources(page.path));
  const std::string pictures = "docs/" + page.pictures;
  const ScratchFolder folder;
  std::set<std::string> drawn;
  for (const TourCommand& command : commands_of(page, text)) {
    const fs::path path = folder.path() / command.picture;
    const Outcome outcome = run_lockstep(command.arguments + path.string());
    ASSERT_EQ(outcome.exit_code, 0) << command.arguments << outcome.text;
    EXPECT_EQ(outcome.text, "drawn in " + path.string() + "\n");
    EXPECT_TRUE(content_of(path) == content_of(in_sources(pictures + command.picture)))
        << command.picture << " is not what the page's command draws; ./dev tour draws it anew";
    EXPECT_THAT(text, HasSubstr("](" + page.pictures + command.picture + ")"));
    drawn.insert(command.picture);
  }
  EXPECT_EQ(drawn.size(), page.count) << page.path;
  for (const auto& entry : fs::directory_iterator(in_sources(pictures))) {
    EXPECT_EQ(drawn.count(entry.path().filename().string()), 1u)
        << entry.path() << " is drawn by no command of " << page.path;
  }
}

TEST(Tour, CommandsOfThePageDrawItsPictures) { expect_drawn_by_its_commands(kPages[0]); }
TEST(MeshPage, CommandsOfThePageDrawItsPictures) { expect_drawn_by_its_commands(kPages[1]); }

// The two that the README shows side by side; its command draws the first.
TEST(Tour, TheReadmesCommandDrawsItsPictures) {
  const std::string readme = content_of(in_sources("README.md"));
  const std::string command =
      "explain all_reduce --algorithm ring --ranks 4 --view rounds --svg ring.svg";
  ASSERT_THAT(readme, HasSubstr("`lockstep " + command + "`"));
  const ScratchFolder folder;
  for (const std::string algorithm : {"ring", "rabenseifner"}) {
    const std::string asked = std::regex_replace(command, std::regex("ring"), algorithm);
    const auto file = asked.rfind(' ') + 1;
    const fs::path path = folder.path() / asked.substr(file);
    ASSERT_EQ(run_lockstep(asked.substr(0, file) + path.string()).exit_code, 0);
    EXPECT_TRUE(content_of(path) == content_of(in_sources("docs/images/" + asked.substr(file))))
        << algorithm << ".svg is not what the README's command draws; ./dev tour draws it anew";
    EXPECT_THAT(readme, HasSubstr("docs/images/" + asked.substr(file)));
  }
}

TEST(Tour, PicturesAreForEyesAndEarsAndBothScreens) {
  for (const Page& page : kPages) {
    for (const auto& entry : fs::directory_iterator(in_sources("docs/" + page.pictures))) {
      const std::string svg = content_of(entry.path());
      EXPECT_THAT(svg, HasSubstr("<title id=\"title\">")) << entry.path();
      EXPECT_THAT(svg, HasSubstr("<desc id=\"description\">")) << entry.path();
      EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 ")) << entry.path();
      EXPECT_THAT(svg, HasSubstr("@media (prefers-color-scheme: dark)")) << entry.path();
      EXPECT_EQ(svg.find("var(--"), std::string::npos) << entry.path();
    }
  }
}

TEST(Tour, NamesFilesThatExist) {
  const std::regex name("`(lockstep/[a-z0-9_./]+)`");
  for (const Page& page : kPages) {
    const std::string text = content_of(in_sources(page.path));
    std::size_t names = 0;
    for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at, ++names) {
      EXPECT_TRUE(fs::exists(in_sources((*at)[1]))) << (*at)[1];
    }
    EXPECT_GE(names, page.count) << page.path;
  }
}

// The errors for mistyped flags of a topic.
TEST(Tour, TopicsSayWhatIsWrong) {
  const auto expect_refusal = [](const std::string& arguments, const std::string& why) {
    const Outcome outcome = run_lockstep("explain " + arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_THAT(outcome.text, HasSubstr(why)) << arguments;
  };
  expect_refusal("block --model gpt2-124", "did you mean gpt2-124m?");
  expect_refusal("memory --recompute ful", "none, selective or full");
  expect_refusal("gathers --ranks 1", "--ranks: Value 1 not in range");
  expect_refusal("buckets --tflops 0", "--tflops is 0; 0.001 to 1048576 is fine");
  expect_refusal("buckets --tflops nan", "--tflops is nan; 0.001 to 1048576 is fine");
  expect_refusal("buckets --bucket-mb 1e300", "--bucket-mb is 1e+300; 0.001 to 1048576 is fine");
  expect_refusal("buckets --ranks 1000000", "--ranks: Value 1000000 not in range");
  expect_refusal("server --servers 1000000", "--servers: Value 1000000 not in range");
  expect_refusal("server --slice-mb 1e-9", "--slice-mb is 1e-09; 0.001 to 1048576 is fine");
  expect_refusal("zero --ranks 0", "--ranks: Value 0 not in range");
  expect_refusal("block --layers -1", "--layers: Value -1 not in range");
  expect_refusal("block --batch 99999999999999999999", "--batch");
  expect_refusal("symmetric --ranks 9", "1 to 8");
  expect_refusal("zero --rank 4", "did you mean --ranks?");
  expect_refusal("mesh --ranks 16 --tensor 3", "parallel.tensor is 3, which does not divide 16");
  expect_refusal("mesh --ranks 128 --svg x.svg", "up to 64 ranks");
  expect_refusal("mesh --ranks-per-node 0", "1 or more");
  expect_refusal("pipeline --schedule 1f1p", "did you mean 1f1b?");
  expect_refusal("pipeline --schedule gpipe --chunks 2", "interleaved has several");
  expect_refusal("pipeline --schedule gpipe --forward 0", "--forward is 0; more than 0 is fine");
  expect_refusal("pipeline --schedule gpipe --stages 0", "0 stages; 1 or more are fine");
  expect_refusal("pipeline --stages 1000000 --micro-batches 1000000",
                 "schedules have up to 1000000");
  expect_refusal("pipeline --svg x.svg", "choose them by --schedule");
  expect_refusal("all_reduce --algorithm ring --view ring", "give --svg FILE");
  expect_refusal("all_reduce --algorithm ring --view tree --svg x.svg", "form no tree");
}

TEST(Tour, TopicsPrintAShortText) {
  for (const char* topic : {"block", "memory --layers 2", "buckets --layers 2", "zero",
                            "gathers --layers 2", "symmetric", "server --layers 2", "checkpoint",
                            "mesh --tensor 2", "pipeline", "pipeline --schedule 1f1b,zb_h1"}) {
    const Outcome outcome = run_lockstep(std::string("explain ") + topic);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    const auto lines = std::count(outcome.text.begin(), outcome.text.end(), '\n');
    EXPECT_GE(lines, 4) << topic;
    EXPECT_LE(lines, 40) << topic;
  }
}

TEST(MeshPage, ATimetableIsPrintedAsText) {
  const Outcome outcome =
      run_lockstep("explain pipeline --schedule 1f1b --stages 3 --micro-batches 3");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("  stage 0  F0 F1 F2 .  .  .  .  B0 -- .  B1 -- .  B2 --\n"
                                      "  stage 1  .  F0 F1 .  .  B0 -- F2 B1 -- .  B2 -- .  .\n"
                                      "  stage 2  .  .  F0 B0 -- F1 B1 -- F2 B2 -- .  .  .  .\n"));
  EXPECT_THAT(outcome.text, HasSubstr("bubble    66.7 % of the time that a stage computes"));
  EXPECT_THAT(outcome.text, HasSubstr("stash     3, 2 and 1 micro-batches"));
  EXPECT_THAT(outcome.text, HasSubstr("messages  12"));
}

TEST(MeshPage, GroupsArePrintedWithTheirNodes) {
  const Outcome outcome = run_lockstep("explain mesh --ranks 16 --tensor 2 --pipeline 2");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("16 ranks: pipeline 2 x data 4 x tensor 2, 8 on a node"));
  EXPECT_THAT(outcome.text, ::testing::ContainsRegex("pipeline +2 +crosses nodes +\\[0 8\\]"));
  EXPECT_THAT(outcome.text, ::testing::ContainsRegex("data +4 +inside nodes +\\[0 2 4 6\\]"));
  EXPECT_THAT(outcome.text, ::testing::ContainsRegex("tensor +2 +inside nodes +\\[0 1\\]"));
}

}  // namespace
}  // namespace lockstep::testing
