// lockstep explain as users call it, and the errors for mistyped commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/base/text/text.h"
#include "tests/cli/shell.h"
#include "tests/comm/schedule/sweep.h"
#include "tests/paths.h"

namespace lockstep::schedule {
namespace {

using lockstep::testing::Outcome;
using lockstep::testing::run_lockstep;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Outcome run(const std::string& arguments) { return run_lockstep("explain " + arguments); }

void expect_refusal(const std::string& arguments, const std::string& why, int exit_code = 2) {
  const Outcome outcome = run_lockstep(arguments);
  EXPECT_EQ(outcome.exit_code, exit_code) << arguments;
  EXPECT_THAT(outcome.text, AllOf(StartsWith("lockstep: "), HasSubstr(why)));
}

std::string read(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Explain, ListsEverything) {
  const Outcome outcome = run("");
  EXPECT_EQ(outcome.exit_code, 0);
  for (Collective collective : kScheduledCollectives) {
    EXPECT_THAT(outcome.text, HasSubstr(std::string(name(collective))));
    for (const Algorithm& algorithm : algorithms(collective)) {
      EXPECT_THAT(outcome.text, HasSubstr(std::string(algorithm.summary)));
    }
  }
}

TEST(Explain, PricesThousandsOfRanks) {
  const std::string network =
      "--cost 'inner=nvlink,outer=rdma,ranks_per_machine=8,nics_per_machine=8'";
  for (const char* collective : {"all_reduce", "all_to_all", "reduce_scatter", "broadcast"}) {
    const Outcome outcome = run(fmt::format("{} --ranks 16384 {}", collective, network));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("16384 ranks on 2048 nodes"));
    EXPECT_THAT(outcome.text, Not(HasSubstr("without "))) << "an algorithm has no price";
  }
  EXPECT_EQ(run("all_reduce --ranks 16385 --cost 'outer=rdma'").exit_code, 0);
}

TEST(Explain, TellsEveryAlgorithm) {
  for (Collective collective : kScheduledCollectives) {
    for (const Algorithm& algorithm : algorithms(collective)) {
      const Outcome outcome =
          run(fmt::format("{} --algorithm {} --ranks 5", name(collective), algorithm.name));
      EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
      EXPECT_THAT(outcome.text, HasSubstr("This is the right result on every rank"));
    }
  }
}

TEST(Explain, ShowsARingRoundByRound) {
  const Outcome outcome = run("all_reduce --algorithm ring --ranks 4 --size 4KiB");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text,
              HasSubstr("round 0\n"
                        "  rank  sends         receives                  chunk 0  chunk 1  chunk 2"
                        "  chunk 3\n"
                        "  0     chunk 3 to 1  chunk 2 from 3, combines  0        0        0+3    "
                        "  0\n"));
  EXPECT_THAT(outcome.text, HasSubstr("2(N-1) = 6"));
  EXPECT_THAT(outcome.text, HasSubstr("sent by each rank  1.5 S    6 KiB"));
  EXPECT_THAT(outcome.text, HasSubstr("2(N-1)S = 6 S"));
}

TEST(Explain, DrawsEveryView) {
  const ScratchFolder folder;
  const std::filesystem::path path = folder.path() / "drawn.svg";
  const auto drawn = [&](const std::string& arguments) {
    const Outcome outcome = run(fmt::format("{} --svg {}", arguments, path.string()));
    EXPECT_EQ(outcome.text, fmt::format("drawn in {}\n", path.string()));
    return read(path);
  };
  // A circle for every rank and round of a ring, two for every rank of a tree and one for each
  // number on its edges.
  const auto circles = [](const std::string& svg) {
    std::size_t count = 0;
    for (auto at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) {
      ++count;
    }
    return count;
  };
  EXPECT_EQ(circles(drawn("all_reduce --algorithm ring --ranks 5")), 5u * 8);
  EXPECT_EQ(circles(drawn("all_reduce --algorithm tree --ranks 8")), 2u * 8 + 2 * 7);
  EXPECT_EQ(circles(drawn("all_reduce --algorithm ring --ranks 5 --view rounds")), 0u);
}

TEST(Explain, DrawsBalancedSvg) {
  const ScratchFolder folder;
  const std::filesystem::path path = folder.path() / "drawn.svg";
  const Outcome outcome =
      run(fmt::format("all_to_all --algorithm pairwise --ranks 3 --svg {}", path.string()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  const std::string svg = read(path);
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("round 1"));
  const std::string_view arrow = " fill=\"none\" d=\"M";
  std::size_t arrows = 0;
  for (auto at = svg.find(arrow); at != std::string::npos; at = svg.find(arrow, at + 1)) {
    ++arrows;
  }
  EXPECT_EQ(arrows, 6u);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path(), path) << "nothing is left of writing it";
  }
}

// Commands in the docs stand in backquotes, in front of what they print.
TEST(Explain, PrintsTheCrossoversOfTheDocs) {
  const std::string docs = read(in_sources("docs/collectives.md"));
  int checked = 0;
  for (auto at = docs.find("`lockstep explain"); at != std::string::npos;
       at = docs.find("`lockstep explain", at + 1)) {
    const auto end = docs.find('`', at + 1);
    const std::string command = docs.substr(at + 1, end - at - 1);
    const auto shown = docs.find("\n    the cheapest", end);
    if (command.find("--cost") == std::string::npos || shown == std::string::npos) continue;
    std::string wanted;
    std::istringstream lines(docs.substr(shown + 1));
    for (std::string line; std::getline(lines, line) && line.starts_with("    ");) {
      wanted += line.substr(4) + "\n";
    }
    EXPECT_THAT(run(command.substr(std::string("lockstep explain").size())).text,
                HasSubstr(wanted));
    ++checked;
  }
  EXPECT_EQ(checked, 2);
}

TEST(Explain, DrawsTheCostsOfAllAlgorithms) {
  const ScratchFolder folder;
  const std::filesystem::path path = folder.path() / "costs.svg";
  const Outcome outcome = run(fmt::format(
      "all_reduce --ranks 8,12 --cost alpha=5us,bandwidth=100Gbit --svg {}", path.string()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1) << outcome.text;
  const std::string svg = read(path);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  for (const char* text : {">8 ranks on 8 nodes<", ">12 ranks on 12 nodes<", ">ring<", ">torus_3d<",
                           "<rect", ">rabenseifner<", ">1 GiB<"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
}

TEST(Explain, PricesAllAlgorithms) {
  const Outcome outcome = run("broadcast --ranks 4,8 --size 1Ki..64Ki --cost outer=ethernet");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("8 ranks on 8 nodes"));
  EXPECT_THAT(outcome.text, HasSubstr("1 KiB"));
  EXPECT_THAT(outcome.text, HasSubstr("64 KiB"));
  EXPECT_THAT(outcome.text, HasSubstr("the cheapest, from small to large vectors"));
}

TEST(Explain, TakesMachinesAndGridsAsTheNumberOfRanks) {
  EXPECT_THAT(run("all_reduce --algorithm hierarchical --machines 2,3").text,
              HasSubstr("hierarchical, 5 ranks on 2 nodes led by 0, 2\n"));
  EXPECT_THAT(run("all_reduce --algorithm mesh_2d --grid 2x3").text,
              HasSubstr("mesh_2d, 6 ranks, a grid of 2x3\n"));
}

TEST(Explain, SaysWhichGridAndMachinesAnAlgorithmGoesBy) {
  EXPECT_THAT(run("all_reduce --algorithm torus_3d --ranks 12").text,
              HasSubstr("torus_3d, 12 ranks, a grid of 2x2x3\n"));
  EXPECT_THAT(run("all_reduce --algorithm server --ranks 3 --root 2").text,
              HasSubstr("server, 3 ranks, server 2\n"));
}

TEST(Explain, PricesWhatMachinesAndGridsSay) {
  const std::string network = " --cost inner=nvlink,outer=rdma";
  const Outcome machines = run("all_reduce --machines 4,4" + network);
  EXPECT_THAT(machines.text, HasSubstr("a message inside a node takes 2 us + bytes / (450 GB/s), "
                                       "between nodes 5.00 us + bytes / (25 GB/s)"));
  EXPECT_THAT(machines.text, HasSubstr("8 ranks on 2 nodes"));
  EXPECT_THAT(run("all_reduce --grid 2x4 --cost outer=rdma").text,
              HasSubstr("without torus_3d: it needs a grid of 3 extents"));
  expect_refusal("explain all_reduce --ranks 8" + network, "ranks_per_machine=8");
  expect_refusal("explain all_reduce --machines 4,4" + network + ",ranks_per_machine=2",
                 "both say which ranks share a node");
}

TEST(Explain, SaysWhatIsWrongAndWhatIsNear) {
  const auto refused = [](const std::string& arguments, const std::string& why) {
    expect_refusal("explain " + arguments, why);
  };
  refused("all_reduc", "did you mean all_reduce?");
  refused("all_reduce -a rign", "did you mean ring?");
  refused("all_reduce --cost alhpa=5us,bandwidth=1GB", "did you mean alpha?");
  refused("all_reduce -a torus_2d -n 12 --grid 5x2", "like 3x4");
  refused("all_reduce -a ring -n 2,4", "one number of ranks");
  refused("all_reduce -a ring --size 1Ki..1Gi", "one --size");
  refused("all_reduce -a ring -n 9999", "up to 1024");
  refused("all_reduce --svg x.svg", "choose by --algorithm or --cost");
  refused("all_reduce -a ring --cost alpha=1us,bandwidth=1Gbit --svg x.svg",
          "either --algorithm or --cost");
  refused("all_reduce --cost alpha=1us,bandwidth=1Gbit --size 1Ki --svg x.svg", "several sizes");
  refused("broadcast -a flat --root 4", "root 4 is not one of the ranks 0 to 3");
  refused("--cost outer=rdma", "name a collective");
  refused("--ranks 4", "name a collective");
  refused("all_reduce --cost ''", "--cost: the value is empty");
  refused("all_reduce --ranks 4", "--ranks needs --algorithm");
  refused("all_reduce -a ring --ranks 0", "whole numbers from 1 up");
  refused("broadcast -a chain --segments 0", "--segments: Value 0 not in range");
  refused("broadcast -a chain --segments 1000000", "--segments: Value 1000000 not in range");
  refused("all_reduce --algoritm ring", "did you mean --algorithm?");
  const Outcome unwritten = run("all_reduce -a ring --svg /nonexistent/x.svg");
  EXPECT_EQ(unwritten.exit_code, 1);
  EXPECT_THAT(unwritten.text, HasSubstr("cannot write /nonexistent/x.svg"));
}

TEST(Explain, PricesEveryNumberOfRanksOnce) {
  const std::string text = run("all_reduce --ranks 1,4,1,4 --cost outer=rdma").text;
  EXPECT_THAT(text, HasSubstr("\n1 rank on 1 node\n"));
  const std::string_view line = "\n4 ranks on 4 nodes\n";
  ASSERT_NE(text.find(line), std::string::npos);
  EXPECT_EQ(text.find(line), text.rfind(line));
}

TEST(CommandLine, NamesTheWordThatIsWrongAndTheNearest) {
  expect_refusal("", "a command is missing; expected one of explain, launch, bench");
  expect_refusal("bench", "a bench command is missing; expected one of collectives");
  expect_refusal("bogus", "unknown command 'bogus'; expected one of explain, launch, bench");
  expect_refusal("lanch -n 2 true", "unknown command 'lanch' (did you mean launch?)");
  expect_refusal("bench foo",
                 "unknown command 'bench foo'; expected one of collectives, ops, train");
  expect_refusal("launch -n 2 --bogus -- true", "unknown flag 'launch --bogus'");
  expect_refusal("explain all_reduce broadcast", "got 'broadcast'");
}

TEST(CommandLine, ResultsThatCannotBeWrittenAreAnError) {
  for (const char* arguments : {"explain all_reduce", "plan --model gpt2-124m", "info"}) {
    const Outcome outcome = lockstep::testing::shell(
        fmt::format("{} {} 2>&1 >/dev/full", lockstep::in_build("lockstep"), arguments));
    EXPECT_EQ(outcome.exit_code, 1) << arguments;
    EXPECT_THAT(outcome.text, HasSubstr("No space left on device")) << arguments;
  }
}

TEST(CommandLine, ABenchThatCannotBeIsRefusedBeforeItStarts) {
  expect_refusal("bench collectives --sizes 0", "1 byte or more");
  expect_refusal("bench collectives --json /nonexistent/x.json", "cannot write /nonexistent/x.json",
                 1);
  expect_refusal("bench collectives --algorithm rng", "did you mean ring?");
  expect_refusal("bench collectives --only lockstep-tpc", "did you mean lockstep-tcp?");
  expect_refusal("bench collectives --op all_redcue", "did you mean all_reduce?");
}

}  // namespace
}  // namespace lockstep::schedule
