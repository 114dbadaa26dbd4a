// Tensor groups and pipelines whose calls are queued among the operations of a GPU.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <span>
#include <vector>

#include "lockstep/comm/native/threads.h"
#include "lockstep/nn/expert_axis.h"
#include "lockstep/nn/pipeline_axis.h"
#include "lockstep/nn/tensor_axis.h"
#include "tests/nn/queued_group.h"

namespace lockstep::nn {
namespace {

using lockstep::QueuedGroup;

TEST(QueuedCalls, TensorsGoOverTheDeviceAndNumbersOverTheHost) {
  run_threads(2, [](Communicator& group) {
    const auto other = group.split(0, group.rank());
    QueuedGroup data(*other);
    TensorAxis axis(group, data);
    const auto ops = make_reference_ops();
    std::vector<float> values = {1, 2, 3, 4};
    axis.sum(*ops, tensor_of(std::span(values)));
    EXPECT_EQ(values, (std::vector<float>{2, 4, 6, 8}));
    EXPECT_EQ(data.calls, 1);
    std::vector<float> mine(2);
    axis.scatter_sum(*ops, tensor_of(std::span(values), {2, 2}),
                     tensor_of(std::span(mine), {1, 2}));
    EXPECT_EQ(mine[0], group.rank() == 0 ? 4 : 12);
    axis.gather_rows(*ops, tensor_of(std::span(mine), {1, 2}),
                     tensor_of(std::span(values), {2, 2}));
    EXPECT_EQ(values, (std::vector<float>{4, 8, 12, 16}));
    EXPECT_EQ(data.calls, 3);
    double ranks = 1;
    axis.sum(std::span(&ranks, 1));
    EXPECT_EQ(ranks, 2);
    EXPECT_TRUE(axis.any(group.rank() == 1));
    EXPECT_EQ(data.calls, 3);
    const AxisCost cost = axis.take_cost();
    EXPECT_GT(cost.bytes_sent, 0u);
    axis.add_sent(7);
    EXPECT_EQ(axis.bytes_sent(), 7u);
    EXPECT_EQ(axis.take_cost().bytes_sent, 7u);
  });
}

// Rows of experts go in pieces: less than one, several, none.
TEST(QueuedCalls, RowsGoToTheRanksOfTheirExperts) {
  constexpr std::int64_t kWidth = 1024;
  const std::vector<std::vector<std::size_t>> sent = {{3, 0, 1500}, {1000, 5, 0}, {0, 341, 2}};
  run_threads(3, [&](Communicator& group) {
    const auto other = group.split(0, group.rank());
    QueuedGroup data(*other);
    ExpertAxis axis(group, data);
    const auto ops = make_reference_ops();
    const auto me = static_cast<std::size_t>(group.rank());
    const auto value = [](std::size_t from, std::size_t to, std::size_t row, std::int64_t column) {
      return static_cast<float>(100000 * from + 10000 * to + 2 * row) +
             static_cast<float>(column % 2);
    };
    std::vector<float> mine, want;
    std::vector<std::size_t> received;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      received.push_back(sent[rank][me]);
      for (std::size_t row = 0; row < sent[me][rank]; ++row) {
        for (std::int64_t i = 0; i < kWidth; ++i) mine.push_back(value(me, rank, row, i));
      }
      for (std::size_t row = 0; row < sent[rank][me]; ++row) {
        for (std::int64_t i = 0; i < kWidth; ++i) want.push_back(value(rank, me, row, i));
      }
    }
    // With more memory than rows, as experts have it.
    mine.resize(mine.size() + 2 * kWidth);
    std::vector<float> got(want.size() + kWidth, -1);
    const auto rows = [&](std::vector<float>& all) {
      return tensor_of(std::span(all), {static_cast<std::int64_t>(all.size()) / kWidth, kWidth});
    };
    axis.exchange_rows(*ops, rows(mine), sent[me], rows(got), received);
    want.resize(got.size(), -1);
    EXPECT_EQ(got, want) << group.rank();
    const std::size_t left =
        std::accumulate(sent[me].begin(), sent[me].end(), std::size_t{0}) - sent[me][me];
    EXPECT_EQ(axis.take_cost().bytes_sent, left * kWidth * sizeof(float));
    data.fail_with(Error(ErrorCode::kTimeout, "rank 1 did not come"));
    double number = 1;
    EXPECT_THROW(axis.sum(std::span(&number, 1)), Error);
  });
}

// A number that ranks agree on comes after the operations, so it must not hide that one failed.
TEST(QueuedCalls, AnErrorAmongTheOperationsIsThrownBeforeRanksAgree) {
  run_threads(2, [](Communicator& group) {
    QueuedGroup data(group);
    TensorAxis tensor(group, data);
    PipelineAxis pipeline(group, data);
    EXPECT_NO_THROW(tensor.throw_failure());
    data.fail_with(Error(ErrorCode::kTimeout, "rank 1 did not come"));
    EXPECT_THROW(tensor.throw_failure(), Error);
    double number = 1;
    EXPECT_THROW(tensor.sum(std::span(&number, 1)), Error);
    EXPECT_THROW(tensor.any(true), Error);
    EXPECT_THROW(pipeline.throw_failure(), Error);
    EXPECT_THROW(pipeline.any(true), Error);
    const std::array<double, 1> one{1};
    EXPECT_THROW(pipeline.gather(one), Error);
  });
}

TEST(QueuedCalls, OnlyProcessesOnOneNodeCaptureThem) {
  run_threads(1, [](Communicator& threads) {
    QueuedGroup processes(threads, "native");
    QueuedGroup native(threads, "cuda");
    QueuedGroup nccl(threads, "nccl");
    EXPECT_TRUE(TensorAxis(processes, native).can_capture());
    EXPECT_FALSE(TensorAxis(threads, native).can_capture());
    EXPECT_FALSE(TensorAxis(processes, nccl).can_capture());
    EXPECT_FALSE(TensorAxis(processes).can_capture());
    EXPECT_TRUE(PipelineAxis(processes, native).queues());
    EXPECT_FALSE(PipelineAxis(processes, nccl).queues());
    EXPECT_FALSE(PipelineAxis(threads).queues());
  });
}

}  // namespace
}  // namespace lockstep::nn
