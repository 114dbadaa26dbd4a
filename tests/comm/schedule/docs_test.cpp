// docs/collectives.md quotes numbers; here they are counted again.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "lockstep/comm/schedule/formula.h"
#include "lockstep/comm/schedule/verify.h"
#include "tests/comm/schedule/sweep.h"
#include "tests/paths.h"

namespace lockstep::schedule {
namespace {

std::vector<std::string> lines_of_docs() {
  std::ifstream file(in_sources("docs/collectives.md"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Two nodes of equal size, all else by default.
std::string counts(const Algorithm& algorithm, int ranks) {
  Shape shape;
  shape.ranks = ranks;
  shape.machines = machines_of_sizes({ranks / 2, ranks - ranks / 2});
  const Traffic traffic = verify(make_schedule(algorithm, shape), Placement::kOutOfPlace);
  return fmt::format("{} | {:.4g} S | {:.4g} S", traffic.rounds, traffic.sent_by_busiest(),
                     traffic.sent_in_all());
}

std::string row_of(const Algorithm& algorithm) {
  const Formula& formula = find_formula(algorithm.collective, algorithm.name);
  return fmt::format("| {} | {} | {} | {} | {} | {} |", name(algorithm.collective), algorithm.name,
                     formula.rounds_text, formula.sent_in_all_text, counts(algorithm, 8),
                     counts(algorithm, 6));
}

TEST(Docs, CountsAreThoseOfTheVerifier) {
  std::vector<std::string> wanted;
  for (Collective collective : kScheduledCollectives) {
    for (const Algorithm& algorithm : algorithms(collective)) wanted.push_back(row_of(algorithm));
  }
  std::vector<std::string> found;
  for (const std::string& line : lines_of_docs()) {
    for (Collective collective : kScheduledCollectives) {
      if (line.starts_with(fmt::format("| {} |", name(collective)))) found.push_back(line);
    }
  }
  EXPECT_EQ(found, wanted) << "the table should read\n"
                           << fmt::format("{}", fmt::join(wanted, "\n"));
}

TEST(Docs, DescribeEveryAlgorithm) {
  std::stringstream text;
  text << std::ifstream(in_sources("docs/collectives.md")).rdbuf();
  for (Collective collective : kScheduledCollectives) {
    for (const Algorithm& algorithm : algorithms(collective)) {
      EXPECT_NE(text.str().find(fmt::format("**{}**", algorithm.name)), std::string::npos)
          << name(collective) << " by " << algorithm.name;
    }
  }
}

}  // namespace
}  // namespace lockstep::schedule
