// docs/tour.md: every picture of the page is redrawn by the command that the page names, and has
// the same bytes. A picture that changes is drawn again by `./dev tour`.
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

const std::string kPictures = "docs/images/tour/";

std::string content_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// A command of the page, on a line of its own.
struct TourCommand {
  std::string arguments;  // between "lockstep " and the file
  std::string picture;    // "ring.svg"
};

std::vector<TourCommand> commands_of_tour(const std::string& page) {
  const std::regex command("\n *(?:\\$ )?lockstep (explain [^\n`]*--svg )" + kPictures +
                           "([a-z_-]+\\.svg)\n");
  std::vector<TourCommand> commands;
  for (std::sregex_iterator at(page.begin(), page.end(), command), end; at != end; ++at) {
    commands.push_back({(*at)[1], (*at)[2]});
  }
  return commands;
}

TEST(Tour, CommandsOfThePageDrawItsPictures) {
  const std::string page = content_of(in_sources("docs/tour.md"));
  const ScratchFolder folder;
  std::set<std::string> drawn;
  for (const TourCommand& command : commands_of_tour(page)) {
    const fs::path path = folder.path() / command.picture;
    const Outcome outcome = run_lockstep(command.arguments + path.string());
    ASSERT_EQ(outcome.exit_code, 0) << command.arguments << outcome.text;
    EXPECT_EQ(outcome.text, "drawn in " + path.string() + "\n");
    EXPECT_TRUE(content_of(path) == content_of(in_sources(kPictures + command.picture)))
        << command.picture << " is not what the page's command draws; ./dev tour draws it anew";
    EXPECT_THAT(page, HasSubstr("](images/tour/" + command.picture + ")"));
    drawn.insert(command.picture);
  }
  EXPECT_GE(drawn.size(), 12u);
  for (const auto& entry : fs::directory_iterator(in_sources(kPictures))) {
    EXPECT_EQ(drawn.count(entry.path().filename().string()), 1u)
        << entry.path() << " is drawn by no command of docs/tour.md";
  }
}

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
  for (const auto& entry : fs::directory_iterator(in_sources(kPictures))) {
    const std::string svg = content_of(entry.path());
    EXPECT_THAT(svg, HasSubstr("<title id=\"title\">")) << entry.path();
    EXPECT_THAT(svg, HasSubstr("<desc id=\"description\">")) << entry.path();
    EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 ")) << entry.path();
    EXPECT_THAT(svg, HasSubstr("@media (prefers-color-scheme: dark)")) << entry.path();
    EXPECT_EQ(svg.find("var(--"), std::string::npos) << entry.path();
  }
}

TEST(Tour, NamesFilesThatExist) {
  const std::string page = content_of(in_sources("docs/tour.md"));
  const std::regex name("`(lockstep/[a-z0-9_./]+)`");
  int names = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), name), end; at != end; ++at, ++names) {
    EXPECT_TRUE(fs::exists(in_sources((*at)[1]))) << (*at)[1];
  }
  EXPECT_GE(names, 12);
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
  expect_refusal("gathers --ranks 1", "2 or more");
  expect_refusal("buckets --tflops 0", "more than 0");
  expect_refusal("symmetric --ranks 9", "1 to 8");
  expect_refusal("zero --rank 4", "did you mean --ranks?");
  expect_refusal("all_reduce --algorithm ring --view ring", "give --svg FILE");
  expect_refusal("all_reduce --algorithm ring --view tree --svg x.svg", "form no tree");
}

TEST(Tour, TopicsPrintAShortText) {
  for (const char* topic : {"block", "memory --layers 2", "buckets --layers 2", "zero",
                            "gathers --layers 2", "symmetric", "server --layers 2", "checkpoint"}) {
    const Outcome outcome = run_lockstep(std::string("explain ") + topic);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    const auto lines = std::count(outcome.text.begin(), outcome.text.end(), '\n');
    EXPECT_GE(lines, 4) << topic;
    EXPECT_LE(lines, 40) << topic;
  }
}

}  // namespace
}  // namespace lockstep::testing
