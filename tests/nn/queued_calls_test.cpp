// Tensor groups and pipelines whose calls are queued among the operations of a GPU.
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <vector>

#include "lockstep/comm/native/threads.h"
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
