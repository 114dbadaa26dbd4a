// The mesh of ranks: every factorisation of small numbers of ranks, and what does not fit.
#include "lockstep/plan/mesh/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void for_every_mesh(int most_ranks, const std::function<void(const Mesh&)>& check) {
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    int shapes = 0;
    for (int data = 1; data <= ranks; ++data) {
      for (int pipeline = 1; data * pipeline <= ranks; ++pipeline) {
        for (int tensor = 1; data * pipeline * tensor <= ranks; ++tensor) {
          for (int context = 1; data * pipeline * tensor * context <= ranks; ++context) {
            const int rest = data * pipeline * tensor * context;
            if (ranks % rest != 0) continue;
            ++shapes;
            check(Mesh({data, pipeline, tensor, context, ranks / rest}));
          }
        }
      }
    }
    EXPECT_GE(shapes, ranks == 1 ? 1 : 5);
  }
}

std::string mesh_refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(Mesh, NamesTheAxesWithSeveralRanks) {
  EXPECT_EQ(describe_rank(Mesh({.data = 2, .pipeline = 2, .tensor = 2}), 3),
            "data 1, pipeline 0, tensor 1");
  EXPECT_EQ(describe_rank(Mesh({.data = 1, .pipeline = 3, .tensor = 1, .context = 2}), 5),
            "pipeline 2, context 1");
}

TEST(Mesh, CoordinatesAndRanksAreABijection) {
  for_every_mesh(16, [](const Mesh& mesh) {
    std::set<std::tuple<int, int, int, int, int>> seen;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const Coordinates at = mesh.coordinates_of(rank);
      EXPECT_EQ(mesh.rank_of(at), rank);
      seen.insert({at.data, at.pipeline, at.tensor, at.context, at.expert});
    }
    EXPECT_EQ(std::ssize(seen), mesh.ranks());
  });
}

TEST(Mesh, GroupsOfAnAxisPartitionTheRanksAndDifferOnItOnly) {
  for_every_mesh(16, [](const Mesh& mesh) {
    for (const Axis axis : kAllAxes) {
      std::multiset<int> covered;
      for (const std::vector<int>& group : mesh.groups(axis)) {
        ASSERT_EQ(std::ssize(group), mesh.shape().extent(axis));
        covered.insert(group.begin(), group.end());
        for (int i = 0; i < std::ssize(group); ++i) {
          Coordinates expected = mesh.coordinates_of(group[0]);
          expected.at(axis) = i;
          EXPECT_EQ(mesh.coordinates_of(group[static_cast<std::size_t>(i)]), expected);
        }
      }
      std::vector<int> all(static_cast<std::size_t>(mesh.ranks()));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_TRUE(std::ranges::equal(covered, all));
    }
  });
}

// Communicator::split() joins ranks of one color, ordered by key.
TEST(Mesh, SplittingByColorAndKeyGivesTheGroups) {
  const std::vector<Axes> asked = {
      Axis::kTensor, Axis::kPipeline, Axes{Axis::kData, Axis::kContext},
      Axes{Axis::kPipeline, Axis::kTensor}, Axes{Axis::kData, Axis::kExpert, Axis::kContext}};
  for_every_mesh(12, [&](const Mesh& mesh) {
    for (const Axes axes : asked) {
      for (int rank = 0; rank < mesh.ranks(); ++rank) {
        std::vector<std::pair<int, int>> same_color;
        for (int other = 0; other < mesh.ranks(); ++other) {
          if (mesh.color(axes, other) == mesh.color(axes, rank)) {
            same_color.emplace_back(mesh.key(axes, other), other);
          }
        }
        std::ranges::sort(same_color);
        std::vector<int> split;
        for (const auto& [key, member] : same_color) split.push_back(member);
        EXPECT_EQ(split, mesh.group(axes, rank));
      }
    }
  });
}

TEST(Mesh, TensorIsFastestAndPipelineSlowest) {
  const Mesh mesh({.data = 2, .pipeline = 2, .tensor = 2, .context = 2, .expert = 2});
  EXPECT_THAT(mesh.group(Axis::kTensor, 5), ElementsAre(4, 5));
  EXPECT_THAT(mesh.group(Axis::kContext, 5), ElementsAre(5, 7));
  EXPECT_THAT(mesh.group(Axis::kExpert, 5), ElementsAre(1, 5));
  EXPECT_THAT(mesh.group(Axis::kData, 5), ElementsAre(5, 13));
  EXPECT_THAT(mesh.group(Axis::kPipeline, 5), ElementsAre(5, 21));
  EXPECT_THAT(mesh.group({Axis::kData, Axis::kContext}, 5), ElementsAre(5, 7, 13, 15));
}

TEST(Mesh, InnerAxesStayInsideNodesOfConsecutiveRanks) {
  const Mesh mesh({.data = 2, .pipeline = 2, .tensor = 4});
  std::vector<int> nodes(16);
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) nodes[rank] = static_cast<int>(rank) / 8;
  EXPECT_FALSE(mesh.crosses_nodes(Axis::kTensor, nodes));
  EXPECT_FALSE(mesh.crosses_nodes(Axis::kData, nodes));
  EXPECT_FALSE(mesh.crosses_nodes({Axis::kData, Axis::kTensor}, nodes));
  EXPECT_TRUE(mesh.crosses_nodes(Axis::kPipeline, nodes));
  std::ranges::reverse(nodes.begin() + 6, nodes.begin() + 10);  // ranks 6 and 7 change nodes
  EXPECT_TRUE(mesh.crosses_nodes(Axis::kTensor, nodes));
  EXPECT_THAT(mesh_refusal([&] {
                mesh.crosses_nodes(Axis::kTensor, std::vector{0, 1});
              }),
              HasSubstr("nodes of 2 ranks are given for a mesh of 16"));
}

TEST(Mesh, DataIsWhatRemains) {
  const Mesh mesh = mesh_of(24, {.data = 0, .pipeline = 3, .tensor = 2});
  EXPECT_EQ(mesh.shape(), (MeshShape{.data = 4, .pipeline = 3, .tensor = 2}));
  EXPECT_EQ(mesh_of(24, {.data = 4, .pipeline = 3, .tensor = 2}).shape(), mesh.shape());
  for_every_mesh(12, [](const Mesh& each) {
    MeshShape shape = each.shape();
    shape.data = 0;
    EXPECT_EQ(mesh_of(each.ranks(), shape).shape(), each.shape());
  });
}

TEST(Mesh, RefusesWhatDoesNotFitTheRanks) {
  EXPECT_EQ(mesh_refusal([] { mesh_of(16, {.data = 0, .tensor = 3}); }),
            "parallel.tensor is 3, which does not divide 16 ranks; 2 and 4 do");
  EXPECT_EQ(mesh_refusal([] { mesh_of(16, {.data = 0, .pipeline = 2, .tensor = 3}); }),
            "parallel.tensor 3 x parallel.pipeline 2 is 6, which does not divide 16 ranks; 4 and 8 "
            "do");
  EXPECT_EQ(mesh_refusal([] { mesh_of(4, {.data = 0, .tensor = 8}); }),
            "parallel.tensor is 8, which does not divide 4 ranks; 4 does");
  EXPECT_THAT(mesh_refusal([] { mesh_of(16, {.data = 4, .tensor = 2}); }),
              HasSubstr("parallel.data is 4, but 16 ranks and the other axes leave 8"));
  EXPECT_THAT(mesh_refusal([] { mesh_of(16, {.data = 0, .tensor = 0}); }),
              HasSubstr("parallel.tensor is 0; an axis has 1 or more ranks"));
  EXPECT_THAT(mesh_refusal([] { mesh_of(0, {.data = 0}); }), HasSubstr("a mesh of 0 ranks"));
  constexpr int kHuge = 1 << 30;
  EXPECT_THAT(mesh_refusal([] { mesh_of(16, {.data = 0, .pipeline = kHuge, .tensor = kHuge}); }),
              HasSubstr("16 does"));
  EXPECT_THAT(mesh_refusal([] { Mesh({.data = kHuge, .pipeline = kHuge, .tensor = kHuge}); }),
              HasSubstr("larger than any job"));
}

TEST(Mesh, RefusesWhatIsOutside) {
  const Mesh mesh({.data = 2, .tensor = 2});
  EXPECT_THAT(mesh_refusal([&] { mesh.coordinates_of(4); }), HasSubstr("rank 4 is outside"));
  EXPECT_THAT(mesh_refusal([&] { mesh.coordinates_of(-1); }), HasSubstr("rank -1 is outside"));
  EXPECT_THAT(mesh_refusal([&] { mesh.rank_of({.tensor = 2}); }),
              HasSubstr("coordinate 2 on axis tensor is outside of its 2 ranks"));
}

TEST(Mesh, RefusesWhatTheModelCannotBeDividedInto) {
  EXPECT_EQ(mesh_refusal([] { check_limits({.tensor = 3}, {.heads = 8}); }),
            "parallel.tensor is 3, which does not divide 8 heads; 2 and 4 do");
  // What is proposed fits both kinds of heads.
  EXPECT_EQ(mesh_refusal([] { check_limits({.tensor = 4}, {.heads = 12, .kv_heads = 6}); }),
            "parallel.tensor is 4, which does not divide 6 kv heads; 3 and 6 do");
  EXPECT_EQ(mesh_refusal([] { check_limits({.tensor = 5}, {.heads = 12, .kv_heads = 4}); }),
            "parallel.tensor is 5, which does not divide 12 heads; 4 does");
  EXPECT_EQ(mesh_refusal([] { check_limits({.expert = 6}, {.experts = 8}); }),
            "parallel.expert is 6, which does not divide 8 experts; 4 and 8 do");
  EXPECT_EQ(mesh_refusal([] { check_limits({.context = 3}, {.tokens = 1024}); }),
            "parallel.context is 3, which does not divide 1024 tokens; 2 and 4 do");
  EXPECT_EQ(mesh_refusal([] { check_limits({.pipeline = 5}, {.layers = 4}); }),
            "parallel.pipeline is 5, but 4 layers with 1 chunk per stage make 4 stages at most");
  EXPECT_EQ(mesh_refusal([] { check_limits({.pipeline = 3}, {.layers = 5, .chunks = 2}); }),
            "parallel.pipeline is 3, but 5 layers with 2 chunks per stage make 2 stages at most");
  EXPECT_THAT(mesh_refusal([] { check_limits({}, {.layers = 2, .chunks = 3}); }),
              HasSubstr("3 chunks per stage need 3 layers or more, not 2"));
  EXPECT_EQ(
      mesh_refusal([] {
        check_limits(
            {.pipeline = 4, .tensor = 2, .context = 4, .expert = 2},
            {.heads = 8, .kv_heads = 2, .layers = 8, .experts = 4, .tokens = 1024, .chunks = 2});
      }),
      "");
}

}  // namespace
}  // namespace lockstep::plan
