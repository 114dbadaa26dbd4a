// The parts that parameter servers are made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/parallel/compression/convert.h"
#include "lockstep/parallel/gradients/gradient_chunks.h"
#include "lockstep/parallel/server/slices/served_layout.h"
#include "lockstep/parallel/server/wire/step_messages.h"
#include "lockstep/parallel/server/worker/push_queue.h"
#include "tests/parallel/server/fixture.h"

namespace lockstep::parallel::server_test {
namespace {

nn::MemoryPlan tiny_plan(Ops& ops) {
  return nn::plan_memory(nn::make_tiny(nn::Tiny::kGpt2), nn::tiny_setup(nn::Tiny::kGpt2), ops,
                         nn::OptimizerState::kMoments);
}

TEST(Slices, CoverTheRowInOrderAndKeepToBlocksAndDecay) {
  const std::unique_ptr<Ops> ops = make_reference_ops();
  const nn::FlatParameters flat = tiny_plan(*ops).flat;
  for (const double megabytes : {1e-4, 0.0007, 0.003, 4.0}) {
    for (const int servers : {1, 2, 5}) {
      const std::vector<Slice> slices = cut_slices(flat, megabytes, false, servers);
      std::size_t end = 0;
      std::vector<std::size_t> load(static_cast<std::size_t>(servers));
      for (const Slice& slice : slices) {
        EXPECT_EQ(slice.range.first, end);
        EXPECT_EQ(slice.range.first % nn::FlatParameters::kAlignment, 0u);
        EXPECT_GE(slice.range.first, flat.range(slice.block).first);
        EXPECT_LE(slice.range.end(), flat.range(slice.block).end());
        end = slice.range.end();
        load[static_cast<std::size_t>(slice.server)] += slice.range.elements;
      }
      EXPECT_EQ(end, flat.elements());
      const auto [least, most] = std::minmax_element(load.begin(), load.end());
      EXPECT_LE(*most - *least, largest_slice(slices));
      std::size_t decaying = 0;
      for (const Slice& slice : slices) decaying += slice.decaying;
      std::size_t expected = 0;
      for (std::size_t block = 0; block < flat.blocks(); ++block) {
        for (const nn::FlatRun& run : flat.runs(block)) {
          if (run.decays) expected += run.range.elements;
        }
      }
      EXPECT_EQ(decaying, expected);
      EXPECT_EQ(decode_slices(encode_slices(slices), servers), slices);
    }
  }
}

TEST(Slices, ThatCannotBeAreRefused) {
  const std::vector<Slice> good = {{{0, 64}, 32, 1, 0}, {{64, 32}, 0, 0, 1}};
  EXPECT_EQ(decode_slices(encode_slices(good), 2), good);
  const auto refused = [](std::vector<Slice> slices, int servers) {
    EXPECT_THROW(decode_slices(encode_slices(slices), servers), Error);
  };
  refused(good, 1);
  refused({{{32, 64}, 0, 0, 0}}, 1);
  refused({{{0, 0}, 0, 0, 0}}, 1);
  refused({{{0, 32}, 33, 0, 0}}, 1);
  refused({{{0, static_cast<std::size_t>(-1)}, 0, 0, 0}}, 1);
  EXPECT_THROW(decode_slices(encode_slices(good).substr(1), 2), Error);
}

TEST(ServedLayout, ComesBackFromItsBytesAndIsRefusedWithOneMissing) {
  const std::unique_ptr<Ops> ops = make_reference_ops();
  const ServedLayout layout{
      .slices = cut_slices(tiny_plan(*ops).flat, 0.003, false, 2),
      .parameter = DType::kBF16,
      .gradient = DType::kF32,
      .compression = {.compression = Compression::kTopk, .ratio = 0.25},
      .optimizer = {.kind = optim::OptimizerKind::kSgd, .max_grad_norm = 0.25}};
  const std::string bytes = encode_layout(layout);
  const auto decoded = decode_layout(std::as_bytes(std::span(bytes)), 2);
  EXPECT_EQ(hash_of(decoded), hash_of(layout));
  for (const std::size_t size : {bytes.size() - 1, std::size_t{3}, std::size_t{0}}) {
    EXPECT_THROW(decode_layout(std::as_bytes(std::span(bytes)).first(size), 2), Error) << size;
  }
  ServedLayout other = layout;
  other.compression.ratio = 0.125;
  EXPECT_NE(hash_of(other), hash_of(layout));
  for (const CompressionOptions nonsense :
       {CompressionOptions{.compression = static_cast<Compression>(std::size(kAllCompressions))},
        CompressionOptions{.compression = Compression::kTopk, .ratio = 2},
        CompressionOptions{.compression = Compression::kTopk, .ratio = std::nan("")}}) {
    other.compression = nonsense;
    const std::string text = encode_layout(other);
    EXPECT_THROW(decode_layout(std::as_bytes(std::span(text)), 2), Error);
  }
}

TEST(StepMessages, ATraceComesBackFromItsBytesAndIsRefusedWithOneMissing) {
  const RankTrace trace{.rank = 3,
                        .spans = {{.lane = TraceLane::kCommunication,
                                   .kind = "exchange",
                                   .of = "slice 7",
                                   .begin = -5,
                                   .end = std::int64_t{1} << 60,
                                   .step = 12,
                                   .bytes = 4096,
                                   .elements = 1024},
                                  {.lane = TraceLane::kStep, .kind = "", .of = ""}}};
  const std::string bytes = encode(trace);
  const RankTrace decoded = decode_trace(std::as_bytes(std::span(bytes)));
  EXPECT_EQ(decoded.rank, 3);
  ASSERT_EQ(decoded.spans.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const TraceSpan& was = trace.spans[i];
    const TraceSpan& is = decoded.spans[i];
    EXPECT_EQ(std::tie(is.lane, is.kind, is.of, is.begin, is.end, is.step, is.bytes, is.elements),
              std::tie(was.lane, was.kind, was.of, was.begin, was.end, was.step, was.bytes,
                       was.elements));
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(decode_trace(std::as_bytes(std::span(bytes)).first(size)), Error) << size;
  }
  RankTrace nonsense = trace;
  nonsense.spans[1].lane = static_cast<TraceLane>(kTraceLanes);
  const std::string text = encode(nonsense);
  EXPECT_THROW(decode_trace(std::as_bytes(std::span(text))), Error);
}

TEST(GradientChunks, NormIsThatOfAllElements) {
  const std::unique_ptr<Ops> ops = make_cpu_ops(2);
  nn::Replica replica =
      nn::make_replica(nn::make_tiny(nn::Tiny::kGpt2), nn::tiny_setup(nn::Tiny::kGpt2), *ops);
  replica.initialise(3);
  const Tensor parameters = replica.states().parameters;
  double sum = 0;
  for (const float value : parameters.as<const float>()) sum += static_cast<double>(value) * value;
  EXPECT_NEAR(chunked_gradient_norm(*ops, replica.flat(), parameters, replica.sums_of_squares()),
              std::sqrt(sum), 1e-6 * std::sqrt(sum));
}

TEST(GradientChunks, StartAnewWithEveryRange) {
  const std::vector<nn::FlatRange> chunks = chunks_of({32, 2 * kChunkElements + 96});
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[0], (nn::FlatRange{32, kChunkElements}));
  EXPECT_EQ(chunks[2], (nn::FlatRange{32 + 2 * kChunkElements, 96}));
  EXPECT_TRUE(chunks_of({5, 0}).empty());
}

TEST(WorkerSum, IsATree) {
  const float large = 1 << 25;  // so large that 1 is lost beside it
  const float rows[] = {large, 1, -large, 1, 1};
  std::vector<const std::byte*> inputs;
  for (const float& row : rows) inputs.push_back(reinterpret_cast<const std::byte*>(&row));
  float sum = 0;
  sum_of_workers(inputs, DType::kF32, {&sum, 1});
  EXPECT_EQ(sum, ((large + 1) + -large) + (1.f + 1.f));
}

TEST(WorkerSum, IsOfAnyTypeAndLength) {
  constexpr std::size_t kCount = 10001;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const std::size_t workers : {1u, 2u, 3u, 4u, 7u}) {
      std::vector<std::vector<float>> values(workers, std::vector<float>(kCount));
      std::vector<std::vector<std::byte>> rows(workers,
                                               std::vector<std::byte>(kCount * size_of(dtype)));
      std::vector<const std::byte*> inputs;
      std::vector<float> expected(kCount);
      for (std::size_t worker = 0; worker < workers; ++worker) {
        for (std::size_t i = 0; i < kCount; ++i) {
          values[worker][i] = static_cast<float>((i * 7 + worker * 3) % 251) - 125;  // all exact
          expected[i] += values[worker][i];
        }
        narrow(values[worker], {rows[worker].data(), kCount, dtype});
        inputs.push_back(rows[worker].data());
      }
      std::vector<float> sum(kCount);
      sum_of_workers(inputs, dtype, sum);
      EXPECT_EQ(sum, expected) << name(dtype) << ' ' << workers;
    }
  }
}

TEST(PushQueue, TheSliceThatIsNeededFirstOvertakesWhatHasNotLeft) {
  PushQueue queue(1, 250);
  for (const std::size_t slice : {7u, 6u, 5u, 4u}) queue.add(slice, slice, 0, 100);
  EXPECT_EQ(queue.next(), 4u);
  EXPECT_EQ(queue.next(), 5u);
  EXPECT_EQ(queue.next(), std::nullopt) << "the credit is used up";
  queue.add(1, 1, 0, 100);
  queue.taken(0, 100);
  EXPECT_EQ(queue.next(), 1u);
}

TEST(PushQueue, ASliceLargerThanTheCreditGoesAlone) {
  PushQueue queue(2, 10);
  queue.add(0, 0, 0, 100);
  queue.add(1, 1, 0, 100);
  queue.add(2, 2, 1, 100);
  EXPECT_EQ(queue.next(), 0u);
  EXPECT_EQ(queue.next(), 2u) << "the other server's way is free";
  EXPECT_EQ(queue.next(), std::nullopt);
  queue.taken(0, 100);
  EXPECT_EQ(queue.next(), 1u);
}

TEST(ServerOptions, TellWhoIsAServer) {
  ServerOptions options{.servers = 2, .placement = ServerPlacement::kDedicated};
  EXPECT_EQ(worker_count(options, 5), 3);
  EXPECT_FALSE(is_server(options, 2, 5));
  EXPECT_TRUE(is_server(options, 3, 5));
  EXPECT_EQ(rank_of_server(options, 1, 5), 4);
  EXPECT_THROW(worker_count(options, 2), Error);
  options.placement = ServerPlacement::kColocated;
  EXPECT_EQ(worker_count(options, 2), 2);
  EXPECT_FALSE(is_server(options, 1, 2));
  EXPECT_EQ(rank_of_server(options, 1, 2), 1);
  EXPECT_THROW(worker_count(options, 1), Error);
}

TEST(ServerBytes, AreWhatAStoreTakes) {
  const std::unique_ptr<Ops> ops = make_reference_ops();
  const nn::MemoryPlan plan = tiny_plan(*ops);
  ParameterServerJob job;
  job.options.servers = 1;
  job.optimizer.max_grad_norm = 0;
  const std::size_t elements = plan.flat.elements();
  const std::size_t few = 1024;  // bytes for sums of squares and the like
  // master, first moment, second moment, and the gradients of 3 workers; the sum of a part of a
  // slice
  const std::size_t slice = largest_slice(cut_slices(plan.flat, job.options.slice_mb, false, 1));
  const std::size_t expected = elements * 4 * (3 + 3) + std::min(slice, kChunkElements) * 4;
  const std::vector<Request> requests = server_memory(job, plan, {.workers = 3, .worker = 0});
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_NEAR(static_cast<double>(requests[0].bytes), static_cast<double>(expected), few);
  EXPECT_TRUE(server_memory(job, plan, {.workers = 3, .worker = 1}).empty());
}

}  // namespace
}  // namespace lockstep::parallel::server_test
