// How operations of a GPU stand in order with copies, streams and events; captured steps; and what
// a GPU finds out too late to refuse it.
#include <gmock/gmock.h>

#include "tests/ops/cuda/gpu_ops.h"
#include "tests/tensor/refusal.h"

namespace lockstep::ops_test {
namespace {

using lockstep::testing::error_of;
using lockstep::testing::refusal_of;
using ::testing::HasSubstr;

constexpr std::int64_t kCount = std::int64_t{1} << 22;  // so that an operation takes a while

// Elements on the GPU.
template <class T>
struct Far {
  Far(std::vector<T> values, const Shape& shape)
      : buffer(values.size() * sizeof(T), kGpu), tensor(buffer.tensor(dtype_of<T>, shape)) {
    copy(tensor, tensor_of(std::span(values), shape));
  }
  explicit Far(std::vector<T> values)
      : Far(values, Shape{static_cast<std::int64_t>(values.size())}) {}
  Far(const Shape& shape, T value) : Far(std::vector<T>(shape.elements(), value), shape) {}

  std::vector<T> values() const {
    std::vector<T> got(tensor.elements());
    copy(tensor_of(std::span(got), tensor.shape()), tensor);
    return got;
  }

  Buffer buffer;
  Tensor tensor;
};

bool all_are(const std::vector<float>& values, float value) {
  return std::ranges::all_of(values, [value](float one) { return one == value; });
}

class CudaOrder : public OnLiveGpu<::testing::Test> {
 protected:
  Ops& ops() { return gpu_ops(); }
};

TEST_F(CudaOrder, HasANameAndADevice) {
  EXPECT_EQ(ops().device(), kGpu);
  EXPECT_TRUE(ops().name().starts_with("cuda:0, ")) << ops().name();
  EXPECT_EQ(make_ops({}, 1)->device(), Device{});
  EXPECT_EQ(make_ops(kGpu, 1)->device(), kGpu);
}

TEST_F(CudaOrder, PlainCopiesWaitForOperations) {
  const Far<float> x({kCount}, 1.0f);
  for (int i = 0; i < 20; ++i) ops().run(ops::Scale{.x = x.tensor, .factor = 2});
  EXPECT_TRUE(all_are(x.values(), 1048576.0f));  // no synchronize() before
  fill_zero(x.tensor);
  ops().run(ops::Add{.a = x.tensor, .b = x.tensor, .y = x.tensor});
  ops().synchronize();
  EXPECT_TRUE(all_are(x.values(), 0.0f));
}

TEST_F(CudaOrder, CopiesInOrderTakeTheirPlaceAmongOperations) {
  const Far<float> x({kCount}, 1.0f), y({kCount}, 0.0f);
  for (int i = 0; i < 10; ++i) ops().run(ops::Scale{.x = x.tensor, .factor = 2});
  ops().in_order([&] {
    copy(y.tensor, x.tensor);
    fill_zero(x.tensor);
  });
  ops().run(ops::Add{.a = y.tensor, .b = x.tensor, .y = x.tensor});
  ops().run(ops::Scale{.x = y.tensor, .factor = 2});
  ops().synchronize();
  EXPECT_TRUE(all_are(x.values(), 1024.0f));
  EXPECT_TRUE(all_are(y.values(), 2048.0f));
}

TEST_F(CudaOrder, StreamsWaitForOperationsAndOperationsForStreams) {
  const Far<float> x({kCount}, 1.0f), y({kCount}, 0.0f);
  Stream stream(kGpu);
  for (int i = 0; i < 10; ++i) ops().run(ops::Scale{.x = x.tensor, .factor = 2});
  stream.wait(ops().record());
  stream.run([&] { copy(y.tensor, x.tensor); });
  const Event copied = stream.record();
  ops().wait(copied);
  ops().run(ops::Scale{.x = x.tensor, .factor = 0});
  ops().run(ops::Scale{.x = y.tensor, .factor = 0.5});
  const Event done = ops().record();
  done.wait();
  EXPECT_TRUE(copied.done() && done.done());
  EXPECT_TRUE(all_are(x.values(), 0.0f));
  EXPECT_TRUE(all_are(y.values(), 512.0f));
  ops().wait(Event());
}

TEST_F(CudaOrder, AnErrorOfAStreamReachesWhoWaitsForIt) {
  Stream stream(kGpu);
  stream.run([] { fail(ErrorCode::kProtocol, "a task went wrong"); });
  const Event event = stream.record();
  EXPECT_THAT(error_of([&] { ops().wait(event); }).what(), HasSubstr("a task went wrong"));
}

TEST_F(CudaOrder, OperationsInATaskKeepTheOrderOfItsStream) {
  const Far<float> x({kCount}, 1.0f), y({kCount}, 0.0f), ones({kCount}, 1.0f);
  Stream stream(kGpu);
  for (int round = 0; round < 5; ++round) {
    stream.run([&] {
      for (int i = 0; i < 5; ++i) copy(x.tensor, ones.tensor);
    });
    stream.run([&] { ops().run(ops::Scale{.x = x.tensor, .factor = 3}); });
    stream.run([&] { copy(y.tensor, x.tensor); });
  }
  stream.synchronize();
  EXPECT_TRUE(all_are(y.values(), 3.0f));
}

TEST_F(CudaOrder, ScratchMemoryMustBeTheGpusAndLargeEnough) {
  const Buffer on_cpu(64);
  EXPECT_THAT(refusal_of([&] { ops().use_scratch(on_cpu.tensor(DType::kU8, {64})); }),
              HasSubstr("scratch memory lies on cpu, expected cuda:0"));
  const Far<float> dy({64, 32}, 1.0f), sum({64, 32}, 1.0f), dsum({64, 32}, 0.0f);
  const Far<float> gain({32}, 1.0f), dgain({32}, 0.0f), row({64}, 1.0f);
  const auto backward = [&] {
    ops().run(ops::NormBackward{.kind = ops::NormKind::kRms,
                                .dy = dy.tensor,
                                .sum = sum.tensor,
                                .gain = gain.tensor,
                                .rstd = row.tensor,
                                .dsum = dsum.tensor,
                                .dgain = dgain.tensor});
  };
  const std::size_t needed = ops().norm_scratch(64, 32);
  if (needed == 0) return;
  ops().use_scratch({});
  EXPECT_THAT(refusal_of(backward), HasSubstr("bytes of workspace"));
  // Wherever it begins, what was asked for is enough.
  const Buffer scratch(needed + 1, kGpu);
  ops().use_scratch(scratch.tensor(DType::kU8, {static_cast<std::int64_t>(needed)}, 1));
  backward();
  ops().synchronize();
  ops().use_scratch({});
}

// ---- captured steps

TEST_F(CudaOrder, ACapturedStepIsDoneAtEveryLaunch) {
  const Far<float> x({1000}, 1.0f), y({1000}, 7.0f), kept({1000}, 0.0f);
  ASSERT_TRUE(ops().can_capture());
  ops().begin_capture();
  ops().run(ops::Scale{.x = x.tensor, .factor = 2});
  fill_zero(y.tensor);  // copies and fills of the thread are captured, too
  ops().run(ops::Add{.a = x.tensor, .b = y.tensor, .y = y.tensor});
  ops().in_order([&] { copy(kept.tensor, y.tensor); });
  const auto step = ops().end_capture();
  EXPECT_GE(step->nodes(), 4u);
  ops().synchronize();
  EXPECT_TRUE(all_are(x.values(), 1.0f));  // nothing was done yet
  for (int i = 0; i < 3; ++i) step->launch();
  ops().run(ops::Scale{.x = x.tensor, .factor = 10});
  ops().synchronize();
  EXPECT_TRUE(all_are(x.values(), 80.0f));
  EXPECT_TRUE(all_are(kept.values(), 8.0f));
}

TEST_F(CudaOrder, WhileAStepIsCapturedNothingCanWait) {
  const Far<float> x({1000}, 1.0f);
  ops().begin_capture();
  EXPECT_THAT(refusal_of([&] { ops().synchronize(); }), HasSubstr("while a step is captured"));
  EXPECT_THAT(refusal_of([&] { ops().record(); }), HasSubstr("while a step is captured"));
  EXPECT_THAT(refusal_of([&] { ops().wait({}); }), HasSubstr("while a step is captured"));
  EXPECT_THAT(refusal_of([&] { ops().begin_capture(); }), HasSubstr("while a step is captured"));
  ops().run(ops::Scale{.x = x.tensor, .factor = 2});
  const auto step = ops().end_capture();
  EXPECT_THAT(refusal_of([&] { ops().end_capture(); }), HasSubstr("begin_capture() first"));
  step->launch();
  ops().synchronize();
  EXPECT_TRUE(all_are(x.values(), 2.0f));
}

TEST_F(CudaOrder, ACaptureThatWasBrokenOffLeavesTheOpsUsable) {
  const Far<float> x({1000}, 1.0f), y({999}, 1.0f);
  ops().begin_capture();
  EXPECT_THAT(refusal_of([&] { ops().run(ops::Add{.a = x.tensor, .b = y.tensor, .y = x.tensor}); }),
              HasSubstr("add: "));
  ops().end_capture();
  ops().run(ops::Scale{.x = x.tensor, .factor = 2});
  ops().synchronize();
  EXPECT_TRUE(all_are(x.values(), 2.0f));
}

// That every operation can be captured, and does then what it does otherwise.
TEST_F(CudaOrder, EveryOperationGivesTheSameBitsFromACapturedStep) {
  Problems problems;
  for (const OpDescription& description : bench::op_descriptions()) {
    const std::vector<OpCase> cases = description.cases(DType::kBF16);
    const OpCase& one = cases[std::min<std::size_t>(2, cases.size() - 1)];
    const bool goes_on = problems.collect(description.name + " [" + one.name + "]", [&] {
      CaseMemory memory(one, 1, {kGpu, Places::kEven});
      memory.run(ops());
      std::map<std::string, std::vector<std::byte>> direct;
      for (const OpField& field : one.fields) {
        direct[field.name] = memory.field(field.name).content();
      }
      memory.restore();
      memory.run(ops(), [&](Ops& by, const Tensors& t) {
        by.begin_capture();
        try {
          one.run(by, t);
        } catch (const Error&) {
          by.end_capture();
          throw;
        }
        by.end_capture()->launch();
      });
      std::vector<std::string> lines;
      for (const auto& [field, content] : direct) {
        if (memory.field(field).content() != content) lines.push_back(field + " has other bits");
      }
      return lines;
    });
    if (!goes_on) return;
  }
}

// ---- indices outside of their tables

class CudaFaults : public CudaOrder {
 protected:
  void SetUp() override {
    CudaOrder::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    own_ = make_cuda_ops(0);  // what others captured is still expected by theirs
    scratch_ = Buffer(ops().embedding_scratch(6, 4, 10), kGpu);
  }
  Ops& ops() { return *own_; }

  void embed(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& types) {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    const Far<std::int32_t> t(tokens), s(types);
    const Far<float> table({10, 4}, 1.0f), types_table({2, 4}, 1.0f), y({rows, 4}, 0.0f);
    ops().run(ops::Embedding{.tokens = t.tensor,
                             .types = s.tensor,
                             .tokens_table = table.tensor,
                             .types_table = types_table.tensor,
                             .y = y.tensor});
    ops().synchronize();
    EXPECT_TRUE(all_are(y.values(), 2.0f));
  }
  void embed_backward(const std::vector<std::int32_t>& tokens) {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    const Far<std::int32_t> t(tokens);
    const Far<float> table({10, 4}, 0.0f), dy({rows, 4}, 1.0f);
    ops().use_scratch(scratch_.tensor(DType::kU8, {static_cast<std::int64_t>(scratch_.bytes())}));
    ops().run(
        ops::EmbeddingBackward{.tokens = t.tensor, .dy = dy.tensor, .dtokens_table = table.tensor});
    ops().use_scratch({});
    ops().synchronize();
  }
  void classify(const std::vector<std::int32_t>& targets) {
    const auto rows = static_cast<std::int64_t>(targets.size());
    const Far<std::int32_t> t(targets);
    const Far<float> logits({rows, 5}, 1.0f), losses({rows}, 0.0f);
    ops().run(
        ops::CrossEntropy{.logits = logits.tensor, .targets = t.tensor, .losses = losses.tensor});
    ops().synchronize();
  }

  // As the shard from class 5 on, of 12.
  void classify_shard(const std::vector<std::int32_t>& targets) {
    const auto rows = static_cast<std::int64_t>(targets.size());
    const Far<std::int32_t> t(targets);
    const Far<float> logits({rows, 5}, 1.0f), statistics({1, rows, ops::kLogitStatistics}, 1.0f),
        losses({rows}, 0.0f);
    ops().run(ops::LogitStatistics{.logits = logits.tensor,
                                   .targets = t.tensor,
                                   .first_class = 5,
                                   .all_classes = 12,
                                   .statistics = statistics.tensor.row(0)});
    ops().synchronize();
    ops().run(ops::CrossEntropy{.logits = logits.tensor,
                                .targets = t.tensor,
                                .losses = losses.tensor,
                                .first_class = 5,
                                .all_classes = 12,
                                .statistics = statistics.tensor});
    ops().synchronize();
  }
  // Rows of the shard from token 4 on, of 14.
  void embed_shard(const std::vector<std::int32_t>& tokens) {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    const Far<std::int32_t> t(tokens);
    const Far<float> table({10, 4}, 1.0f), y({rows, 4}, 5.0f);
    ops().run(ops::Embedding{.tokens = t.tensor,
                             .tokens_table = table.tensor,
                             .y = y.tensor,
                             .first_token = 4,
                             .vocabulary = 14});
    ops().synchronize();
    const std::vector<float> sums = y.values();
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      EXPECT_EQ(sums[4 * row], tokens[row] >= 4 ? 1 : 0) << row;
    }
  }
  void gather(const std::vector<std::int32_t>& pairs) {
    const auto rows = static_cast<std::int64_t>(pairs.size());
    const Far<std::int32_t> p(pairs);
    const Far<float> x({3, 4}, 1.0f), y({rows, 4}, 0.0f);
    ops().run(
        ops::GatherTokens{.pairs = p.tensor, .experts_per_token = 2, .x = x.tensor, .y = y.tensor});
    ops().synchronize();
    EXPECT_TRUE(all_are(y.values(), 1.0f));
  }
  void combine(const std::vector<std::int32_t>& rows) {
    const auto tokens = static_cast<std::int64_t>(rows.size()) / 2;
    const Far<std::int32_t> r(rows, Shape{tokens, 2});
    const Far<float> routed({5, 4}, 1.0f), y({tokens, 4}, 0.0f);
    ops().run(ops::CombineTokens{.rows = r.tensor, .routed = routed.tensor, .y = y.tensor});
    ops().synchronize();
    EXPECT_TRUE(all_are(y.values(), 2.0f));
  }

  Buffer scratch_;
  std::unique_ptr<Ops> own_;
};

TEST_F(CudaFaults, OfShardsAreThoseOutsideTheWhole) {
  embed_shard({0, 3, 4, 13});
  EXPECT_EQ(refusal_of([&] {
              embed_shard({0, 14, 5});
            }),
            "embedding: tokens[1] is 14, expected 0 to 13");
  classify_shard({0, 5, 11, ops::kNoTarget});
  EXPECT_EQ(refusal_of([&] {
              classify_shard({0, 11, 12});
            }),
            "logit_statistics: targets[2] is 12, expected 0 to 11, or -100 for none");
}

TEST_F(CudaFaults, OfRoutedRowsNameTheOperation) {
  gather({0, 5, 3});
  EXPECT_EQ(refusal_of([&] { gather({0, 6}); }), "gather_tokens: pairs[1] is 6, expected 0 to 5");
  combine({0, 4, 2, 2});
  EXPECT_EQ(refusal_of([&] {
              combine({0, 4, -1, 2});
            }),
            "combine_tokens: rows[2] is -1, expected 0 to 4");
}

TEST_F(CudaFaults, AreToldWithTheFirstRowInTheWordsOfTheCpu) {
  EXPECT_EQ(refusal_of([&] {
              embed({0, 9, 10, -3, 1}, {0, 1, 1, 0, 1});
            }),
            "embedding: tokens[2] is 10, expected 0 to 9");
  EXPECT_EQ(refusal_of([&] {
              embed({0, 9, 3, 3, 1}, {0, 1, 1, 0, -2});
            }),
            "embedding: types[4] is -2, expected 0 to 1");
  EXPECT_EQ(refusal_of([&] {
              embed_backward({1, 2, 77, 3, -1, 0});
            }),
            "embedding_backward: tokens[2] is 77, expected 0 to 9");
  EXPECT_EQ(refusal_of([&] {
              classify({4, ops::kNoTarget, 5, 7});
            }),
            "cross_entropy: targets[2] is 5, expected 0 to 4, or -100 for none");
  EXPECT_EQ(refusal_of([&] { classify({-1}); }),
            "cross_entropy: targets[0] is -1, expected 0 to 4, or -100 for none");
}

TEST_F(CudaFaults, AreForgottenOnceTheyAreTold) {
  EXPECT_THAT(refusal_of([&] { embed({11}, {0}); }), HasSubstr("tokens[0] is 11"));
  ops().synchronize();
  embed({0, 9, 5}, {0, 1, 0});
  classify({0, -100, 4});
}

TEST_F(CudaFaults, OfACapturedStepAreToldAtEveryLaunch) {
  const Far<std::int32_t> targets(std::vector<std::int32_t>{0, 8});
  const Far<float> logits({2, 5}, 1.0f), losses({2}, 0.0f);
  ops().begin_capture();
  ops().run(ops::CrossEntropy{
      .logits = logits.tensor, .targets = targets.tensor, .losses = losses.tensor});
  const auto step = ops().end_capture();
  ops().synchronize();
  for (int i = 0; i < 2; ++i) {
    step->launch();
    EXPECT_THAT(refusal_of([&] { ops().synchronize(); }), HasSubstr("targets[1] is 8"));
  }
}

}  // namespace
}  // namespace lockstep::ops_test
