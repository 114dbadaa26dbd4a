// Slices that travel compressed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/parallel/compression/codec_device.h"
#include "lockstep/parallel/compression/own_momentum.h"
#include "lockstep/parallel/server/server_strategy.h"
#include "lockstep/parallel/server/service/slice_service.h"
#include "lockstep/parallel/server/wire/slice_codec.h"
#include "tests/parallel/server/fixture.h"

namespace lockstep::parallel::server_test {
namespace {

using ::testing::HasSubstr;

constexpr Compression kLossy[] = {Compression::kBf16,   Compression::kF16,    Compression::kInt8,
                                  Compression::kInt4,   Compression::kOnebit, Compression::kTopk,
                                  Compression::kRandomk};

Training compressed(Compression compression) {
  Training training;
  training.workers = 2;
  training.servers.slice_mb = 0.003;
  training.compression = {.compression = compression, .ratio = 0.1};
  return training;
}

// What the codec leaves of a flat buffer, slice by slice.
void pass_through(const Codec& codec, const ServedLayout& layout, std::int64_t step,
                  std::span<float> buffer, const OwnState& own) {
  for (std::size_t slice = 0; slice < layout.slices.size(); ++slice) {
    const nn::FlatRange range = layout.slices[slice].range;
    const auto seed = WireFormat::seed(step, slice);
    const auto part = buffer.subspan(range.first, range.elements);
    const auto rest = [&](std::span<float> all) {
      return all.empty() ? all : all.subspan(range.first, range.elements);
    };
    std::vector<std::byte> payload(codec.bytes(range.elements));
    std::vector<float> scratch(codec.scratch_bytes(range.elements) / sizeof(float) + 1);
    encode_own(cpu_codec_device(), codec, own_momentum(layout.optimizer), part,
               {rest(own.residual), rest(own.velocity)}, payload,
               std::as_writable_bytes(std::span(scratch)), seed);
    codec.decode(payload, part, seed);
  }
}

// A single worker that encodes and decodes each worker's gradients as the wire would.
Result alone_compressed(const Training& training) {
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  nn::Replica replica = make_trainee(training, *ops);
  replica.initialise(5);
  const ServedLayout layout = layout_for(job_of(training), replica.plan());
  const std::unique_ptr<Codec> codec = make_codec(training.compression);
  const Tensor gradients = replica.states().gradients;
  const std::span<float> buffer = gradients.as<float>();
  const bool rounds = training.dtype == DType::kF32 && !codec->needs_residual();
  std::vector<std::vector<float>> residuals(static_cast<std::size_t>(training.workers));
  for (auto& residual : residuals) residual.resize(codec->needs_residual() ? buffer.size() : 0);
  const bool own_momenta = takes_own_momentum(training.compression.compression);
  std::vector<std::vector<float>> velocities(residuals.size());
  for (auto& velocity : velocities) velocity.resize(own_momenta ? buffer.size() : 0);
  const optim::OptimizerOptions optimizer =
      optimizer_beside(training.compression, training.optimizer);
  const std::span<float> parameters = replica.states().master.as<float>();
  Result result;
  for (int step = 1; step <= training.steps; ++step) {
    const std::vector<float> master(parameters.begin(), parameters.end());
    if (rounds) pass_through(*codec, layout, 0, parameters, {});
    std::int64_t targets = 0;
    for (int worker = 0; worker < training.workers; ++worker) {
      targets += targets_of(training, share_of(training.plan(), step, worker, training.workers));
    }
    double loss = 0;
    std::vector<std::vector<float>> pushed;
    for (int worker = 0; worker < training.workers; ++worker) {
      const Share share = share_of(training.plan(), step, worker, training.workers);
      replica.zero_gradients();
      for (std::int64_t i = 0; i < share.micro_batches; ++i) {
        nn::TinyBatch batch = batch_of(training, step, share.first_micro_batch + i);
        loss += learn(training, replica, step, batch, targets);
      }
      const auto index = static_cast<std::size_t>(worker);
      pass_through(*codec, layout, step, buffer, {residuals[index], velocities[index]});
      pushed.emplace_back(buffer.begin(), buffer.end());
    }
    sum_gradients(pushed, buffer);
    if (rounds) std::ranges::copy(master, parameters.begin());
    TierMover nothing_moves;
    const UpdateResult update = local_update(replica, nothing_moves,
                                             {.optimizer = optimizer,
                                              .updates = step - 1,
                                              .rate = training.rate(step),
                                              .loss_scale = training.loss_scale});
    result.losses.push_back(loss);
    result.norms.push_back(training.optimizer.max_grad_norm > 0 ? update.gradient_norm : 0);
  }
  take_rows(replica, result);
  return result;
}

void expect_equal_to_oracle(const Training& training) {
  SCOPED_TRACE(
      fmt::format("{}, {}", name(training.compression.compression), describe(training.servers)));
  const Result alone = alone_compressed(training);
  const std::vector<Result> workers = train_with_servers(training);
  EXPECT_TRUE(workers[0].master == alone.master);
  EXPECT_TRUE(workers[0].first_moment == alone.first_moment);
  EXPECT_TRUE(workers[0].second_moment == alone.second_moment);
  for (const Result& worker : workers) {
    EXPECT_EQ(worker.losses, alone.losses);
    EXPECT_EQ(worker.norms, alone.norms);
  }
}

TEST(ServerCompression, ServersAddUpWhatTheCodecLeavesWithAFeedbackOfEveryWorker) {
  for (const Compression compression : kLossy) {
    Training training = compressed(compression);
    expect_equal_to_oracle(training);
    training.servers.servers = 2;
    training.servers.placement = ServerPlacement::kDedicated;
    training.servers.schedule = SliceSchedule::kWfbp;
    training.optimizer.max_grad_norm = 0.01;
    expect_equal_to_oracle(training);
    training.workers = 3;
    training.servers.schedule = SliceSchedule::kFifo;
    training.dtype = DType::kBF16;
    expect_equal_to_oracle(training);
  }
}

TEST(ServerCompression, OneWorkerThatDoesNotWaitIsTheSame) {
  for (const Consistency consistency : {Consistency::kAsp, Consistency::kSsp}) {
    for (const Compression compression : {Compression::kTopk, Compression::kF16}) {
      Training training = compressed(compression);
      training.workers = 1;
      training.servers.consistency = consistency;
      expect_equal_to_oracle(training);
    }
  }
}

TEST(ServerCompression, ScalesWhatIsLeftWithTheLoss) {
  Training training = compressed(Compression::kOnebit);
  training.dtype = DType::kF16;
  training.loss_scale = 1024;
  training.optimizer.max_grad_norm = 1;
  expect_equal_to_oracle(training);
}

TEST(ServerCompression, TakesGradientsOfSixteenBits) {
  for (const Consistency consistency : {Consistency::kBsp, Consistency::kAsp}) {
    for (const Compression compression : kLossy) {
      Training training = compressed(compression);
      training.dtype = training.gradient = DType::kBF16;
      training.servers.servers = 2;
      training.servers.consistency = consistency;
      for (const Result& worker : train_with_servers(training)) {
        for (const double loss : worker.losses) EXPECT_TRUE(std::isfinite(loss));
      }
    }
  }
}

// With a norm to wait for, a step ends when all of its pushes have been taken.
TEST(ServerCompression, BytesOnTheWireAreThoseOfThePayloads) {
  for (const Compression compression : kAllCompressions) {
    Training training = compressed(compression);
    training.servers.servers = 2;
    training.optimizer.max_grad_norm = 1;
    training.steps = 4;
    const std::unique_ptr<Ops> ops = make_cpu_ops(1);
    const ServedLayout layout = layout_for(job_of(training), make_trainee(training, *ops).plan());
    const WireFormat format(layout);
    std::size_t pushed = 0;
    std::size_t pulled = 0;
    std::size_t taken = 0;
    for (const Slice& slice : layout.slices) {
      pushed += sizeof(Header) + make_codec(training.compression)->bytes(slice.range.elements);
      pulled += sizeof(Header) + format.pulled_bytes(slice.range.elements);
      taken += sizeof(Header);
    }
    std::map<int, std::uint64_t> bytes;
    std::mutex mutex;
    train_with_servers(
        training, {.before_share = {},
                   .after_share = [&](int worker, const Share& share, const StepSummary& summary) {
                     const std::lock_guard lock(mutex);
                     const auto& cost = summary.costs.at(static_cast<std::size_t>(worker));
                     EXPECT_EQ(cost.staleness, 0);
                     if (share.step > 1) bytes[worker] += cost.bytes_sent;
                   }});
    // Of a step besides: its begin and end, the request to each server, and the answers.
    const std::size_t losses = 2;
    const std::size_t small = 3 * sizeof(Header) + 2 * 17 + 2 * (sizeof(Header) + 32) +
                              (sizeof(Header) + sizeof(StepCost) + 8 + 8 * losses) +
                              (sizeof(Header) + 8 + 8 + 2 * sizeof(StepCost));
    // What is pulled comes back in this step or the next.
    const auto steps = static_cast<std::uint64_t>(training.steps - 1);
    for (const auto& [worker, sum] : bytes) {
      EXPECT_GE(sum, steps * (pushed + taken + small) + (steps - 1) * pulled) << name(compression);
      EXPECT_LE(sum, steps * (pushed + taken + small) + (steps + 1) * pulled) << name(compression);
    }
  }
}

TEST(ServerCompression, TakesWhatIsPlannedToTheByte) {
  const std::unique_ptr<Ops> ops = make_reference_ops();
  for (const Compression compression : kAllCompressions) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Consistency consistency : {Consistency::kBsp, Consistency::kAsp}) {
        Training training = compressed(compression);
        training.dtype = training.gradient = dtype;
        training.servers.servers = 2;
        training.servers.consistency = consistency;
        const ServedLayout layout =
            layout_for(job_of(training), make_trainee(training, *make_cpu_ops(1)).plan());
        const std::size_t before = memory_in_use({});
        const SliceCodec codec(layout);
        const std::size_t between = memory_in_use({});
        const SliceStore store(layout, consistency, 1, 3, *ops);
        EXPECT_EQ(between - before, SliceCodec::bytes(layout)) << name(compression);
        EXPECT_EQ(memory_in_use({}) - between, SliceStore::bytes(layout, consistency, 1, 3))
            << name(compression);
      }
    }
  }
}

TEST(ServerCompression, APayloadThatIsNoneIsRefusedWithItsWorker) {
  const std::unique_ptr<Ops> ops = make_reference_ops();
  for (const Compression compression : {Compression::kTopk, Compression::kF16}) {
    const Training training = compressed(compression);
    const ServedLayout layout =
        layout_for(job_of(training), make_trainee(training, *make_cpu_ops(1)).plan());
    const WireFormat format(layout);
    SilentWire wire;
    SliceService service(training.servers, layout, 0, 2, *ops, wire);
    Header header{.kind = Kind::kPush, .slice = 1, .round = 1, .number = 1};
    header.bytes = layout.slices[1].range.elements * sizeof(float);
    EXPECT_THROW(service.place(1, header), Error) << "as it was before it was compressed";
    header.bytes = format.pushed_bytes(layout.slices[1].range.elements);
    std::ranges::fill(service.place(1, header), std::byte{0xff});
    try {
      service.push(1, header);
      FAIL() << "nonsense was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
      EXPECT_THAT(error.what(), HasSubstr("worker 1"));
      EXPECT_THAT(error.what(), HasSubstr("slice 1"));
      EXPECT_THAT(error.ranks(), ::testing::ElementsAre(1));
    }
    for (const double step : {-1.0, 1e300, std::nan("")}) {
      header.number = step;
      EXPECT_THROW(service.push(1, header), Error) << step;
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel::server_test
