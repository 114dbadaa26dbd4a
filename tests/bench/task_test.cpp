#include "lockstep/bench/collectives/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/bench/collectives/plan.h"

namespace lockstep::bench {
namespace {

TEST(Task, SizesAreThoseOfNcclTests) {
  const Task all_reduce{.op = Collective::kAllReduce, .bytes = 96};
  EXPECT_EQ(extent(all_reduce, 3).in, 24u);
  EXPECT_EQ(extent(all_reduce, 3).out, 24u);
  const Task all_gather{.op = Collective::kAllGather, .bytes = 96};
  EXPECT_EQ(extent(all_gather, 3).in, 8u);
  EXPECT_EQ(extent(all_gather, 3).out, 24u);
  const Task reduce_scatter{.op = Collective::kReduceScatter, .bytes = 96};
  EXPECT_EQ(extent(reduce_scatter, 3).in, 24u);
  EXPECT_EQ(extent(reduce_scatter, 3).out, 8u);
  const Task all_to_all{.op = Collective::kAllToAll, .bytes = 96};
  EXPECT_EQ(extent(all_to_all, 3).in, 24u);
  EXPECT_EQ(extent(all_to_all, 3).out, 24u);
  EXPECT_EQ(extent(all_to_all, 3).block, 8u);
}

TEST(Task, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllToAll, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kBroadcast, 4), 1);
}

TEST(Task, BytesAreRoundedToWholeBlocksAndAtLeastOne) {
  EXPECT_EQ(whole_bytes(Collective::kAllReduce, DType::kF32, 4, 8), 8u);
  EXPECT_EQ(whole_bytes(Collective::kAllReduce, DType::kF32, 4, 11), 8u);
  EXPECT_EQ(whole_bytes(Collective::kAllReduce, DType::kF64, 4, 1), 8u);
  EXPECT_EQ(whole_bytes(Collective::kAllGather, DType::kF32, 4, 8), 16u);
  EXPECT_EQ(whole_bytes(Collective::kAllToAll, DType::kBF16, 3, 64), 60u);
}

TEST(Task, TravelsAsALine) {
  const Task task{.op = Collective::kBroadcast,
                  .dtype = DType::kBF16,
                  .bytes = 4096,
                  .root = 3,
                  .flavour = "lockstep-private",
                  .algorithm = "ring",
                  .warmup = 2,
                  .iterations = 7};
  const std::string line = to_line(task);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Task back = task_from_line(line);
  EXPECT_TRUE(same_work(task, back));
  EXPECT_EQ(back.warmup, 2);
  EXPECT_EQ(back.iterations, 7);
}

TEST(Reply, TravelsAsALineWhateverAnErrorSays) {
  Reply reply{.seconds = {1e-6, 2.5e-6}, .wall_seconds = 0.5, .error = "two\nlines \xff"};
  const std::string line = to_line(reply);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Reply back = reply_from_line(line);
  EXPECT_EQ(back.seconds, reply.seconds);
  EXPECT_DOUBLE_EQ(back.wall_seconds, 0.5);
  EXPECT_TRUE(back.error.starts_with("two\nlines"));
}

TEST(Task, NonsenseIsAProtocolError) {
  for (const char* line : {"", "{}", "not json", R"({"op": "all_reduce", "dtype": "f7"})"}) {
    try {
      task_from_line(line);
      FAIL() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
    }
  }
}

using testing::ElementsAre;
using testing::HasSubstr;

std::string why_not(CollectivesPlan plan) {
  try {
    settle(plan);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

std::vector<std::string> names(const std::vector<Implementation>& all) {
  std::vector<std::string> list;
  for (const Implementation& one : all) list.push_back(one.name);
  return list;
}

TEST(CollectivesPlan, AnAlgorithmThatNoOpHasIsRefused) {
  EXPECT_THAT(why_not({.algorithms = {"rign"}}), HasSubstr("did you mean ring?"));
  EXPECT_THAT(why_not({.ops = {Collective::kAllToAll}, .algorithms = {"ring"}}),
              HasSubstr("all_to_all has no 'ring'; expected one of fused, direct, pairwise"));
}

TEST(CollectivesPlan, AnAlgorithmTakesPartWhereItsOpHasIt) {
  CollectivesPlan plan{.ops = {Collective::kAllReduce, Collective::kAllToAll},
                       .algorithms = {"ring"}};
  EXPECT_THAT(settle(plan), ElementsAre(HasSubstr("all_to_all has no algorithm 'ring'")));
  EXPECT_EQ(plan.ops.size(), 2u);
  EXPECT_THAT(names(contenders(plan, Collective::kAllReduce)),
              ElementsAre(kSymmetric, kPrivate, kTcp, "lockstep-ring"));
  EXPECT_THAT(names(contenders(plan, Collective::kAllToAll)),
              ElementsAre(kSymmetric, kPrivate, kTcp));
}

TEST(CollectivesPlan, AnOpThatNobodyDoesIsLeftOut) {
  CollectivesPlan plan{.ops = {Collective::kAllReduce, Collective::kAllToAll},
                       .algorithms = {"ring"},
                       .only = {"lockstep-ring"}};
  EXPECT_EQ(settle(plan).size(), 2u);
  EXPECT_THAT(plan.ops, ElementsAre(Collective::kAllReduce));
  EXPECT_THAT(why_not({.peers = true, .only = {"gloo"}}), HasSubstr("nothing is left to measure"));
}

TEST(CollectivesPlan, OnlyNamesImplementationsThatThereAre) {
  EXPECT_THAT(why_not({.only = {"lockstep-tpc"}}), HasSubstr("did you mean lockstep-tcp?"));
  EXPECT_THAT(why_not({.only = {"gloo-ring"}}), HasSubstr("add --peers"));
  EXPECT_THAT(why_not({.only = {"lockstep-ring"}}), HasSubstr("add --algorithm ring"));
  EXPECT_EQ(why_not({.peers = true, .only = {"gloo", "gloo-ring", "lockstep-private"}}), "");
}

}  // namespace
}  // namespace lockstep::bench
