// A table of tokens whose gradient leaves early, and its rows that follow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/parallel/server/server_strategy.h"
#include "lockstep/parallel/server/service/slice_service.h"
#include "lockstep/parallel/server/slices/runs.h"
#include "tests/parallel/server/fixture.h"

namespace lockstep::parallel::server_test {
namespace {

using Bits = std::vector<bool>;

Bits bits_of(const Runs& runs, std::size_t elements) {
  Bits bits(elements);
  for (const nn::FlatRange& run : runs) {
    for (std::size_t i = run.first; i < run.end(); ++i) bits[i] = true;
  }
  return bits;
}

// In order, none empty, none touching another.
void expect_sound(const Runs& runs) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    EXPECT_GT(runs[i].elements, 0u);
    if (i == 0) continue;
    EXPECT_GT(runs[i].first, runs[i - 1].end());
  }
}

TEST(Runs, AreThoseOfTheRowsWhereverASliceIsCut) {
  std::mt19937 draw(7);
  for (int round = 0; round < 200; ++round) {
    const std::size_t width = 1 + draw() % 9;
    const std::size_t table = draw() % 40;
    const nn::FlatRange slice{draw() % 60, 1 + draw() % 100};
    std::vector<std::int32_t> rows(draw() % 12);
    for (std::int32_t& row : rows) row = static_cast<std::int32_t>(draw() % 20);
    Bits expected(slice.elements);
    for (const std::int32_t row : rows) {
      for (std::size_t i = 0; i < width; ++i) {
        const std::size_t at = table + static_cast<std::size_t>(row) * width + i;
        if (at >= slice.first && at < slice.end()) expected[at - slice.first] = true;
      }
    }
    const Runs runs = runs_of_rows(rows, width, table, slice);
    expect_sound(runs);
    EXPECT_EQ(bits_of(runs, slice.elements), expected);
    EXPECT_EQ(elements_of(runs), static_cast<std::size_t>(std::ranges::count(expected, true)));
    const Runs rest = rest_of(runs, slice.elements);
    expect_sound(rest);
    expected.flip();
    EXPECT_EQ(bits_of(rest, slice.elements), expected);
    EXPECT_EQ(decode_runs(encode_runs(runs), slice.elements), runs);
    const Runs others = runs_of_rows(rows, width + 1, table, slice);
    const Runs both = united(runs, others);
    expect_sound(both);
    Bits either = bits_of(runs, slice.elements);
    for (std::size_t i = 0; i < either.size(); ++i) {
      either[i] = either[i] || bits_of(others, slice.elements)[i];
    }
    EXPECT_EQ(bits_of(both, slice.elements), either);
  }
}

TEST(Runs, ComeBackToWhereTheyWere) {
  std::vector<float> slice(40);
  std::iota(slice.begin(), slice.end(), 0.f);
  const Runs runs = {{0, 3}, {10, 1}, {37, 3}};
  std::vector<float> values(7);
  take_runs(runs, sizeof(float), std::as_bytes(std::span(slice)),
            std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values, (std::vector<float>{0, 1, 2, 10, 37, 38, 39}));
  std::vector<float> other(40, -1.f);
  put_runs(runs, sizeof(float), std::as_bytes(std::span(values)),
           std::as_writable_bytes(std::span(other)));
  for (std::size_t i = 0; i < other.size(); ++i) {
    EXPECT_EQ(other[i], bits_of(runs, 40)[i] ? slice[i] : -1.f) << i;
  }
}

TEST(Runs, ThatCannotBeAreRefused) {
  using Numbers = std::vector<std::uint64_t>;
  constexpr std::uint64_t kHuge = static_cast<std::uint64_t>(-1);
  for (const Numbers& numbers : {Numbers{1}, Numbers{0, 0}, Numbers{0, 11}, Numbers{10, 1},
                                 Numbers{4, 2, 5, 1}, Numbers{4, 2, 6, 1}, Numbers{4, 2, 1, 1},
                                 Numbers{kHuge, 2}, Numbers{2, kHuge}, Numbers{kHuge, kHuge}}) {
    EXPECT_THROW(decode_runs(numbers, 10), Error);
  }
  EXPECT_TRUE(decode_runs({}, 10).empty());
  const Runs most = {{0, 1}, {2, 1}, {4, 1}};
  EXPECT_EQ(encode_runs(most).size() * sizeof(std::uint64_t), most_encoded(5));
}

Training wide_training() {
  Training training;
  training.wide = true;
  training.steps = 2;
  training.servers.slice_mb = 0.0098;  // 2560 elements: no whole number of rows, which have 24
  return training;
}

std::optional<EarlyTable> table_of(const Training& training) {
  const nn::Replica replica = make_trainee(training, *make_cpu_ops(1));
  const ParameterServerJob job = job_of(training);
  const ServedLayout layout = layout_for(job, replica.plan());
  return early_table(job, replica.plan(), layout, training.workers);
}

// How many slices some rows of every step come again of, and how many of these rows are cut.
struct Owed {
  std::size_t slices = 0;
  std::size_t cuts = 0;
};
Owed owed_in(const Training& training) {
  const auto table = table_of(training);
  if (!table) return {};
  const nn::Replica replica = make_trainee(training, *make_cpu_ops(1));
  const ServedLayout layout = layout_for(job_of(training), replica.plan());
  Owed owed;
  for (int step = 1; step <= training.steps; ++step) {
    nn::TinyBatch batch = batch_of(training, step, training.micro_batches - 1);
    const Tensor tokens =
        nn::has_source(training.model) ? batch.batch().source : batch.batch().tokens;
    for (std::size_t slice = table->first; slice < table->end; ++slice) {
      const Runs runs = runs_of_rows(tokens.as<const std::int32_t>(), table->width, table->offset,
                                     layout.slices[slice].range);
      owed.slices += runs.empty() ? 0 : 1;
      for (const nn::FlatRange& run : runs) owed.cuts += run.elements % table->width == 0 ? 0 : 1;
    }
  }
  return owed;
}

void expect_bits_of_one(const Training& training, const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_GT(owed_in(training).slices, 0u) << "no row comes again";
  const Result alone = train_alone(training);
  const std::vector<Result> all = train_with_servers(training);
  EXPECT_TRUE(all[0].master == alone.master);
  EXPECT_TRUE(all[0].first_moment == alone.first_moment);
  EXPECT_TRUE(all[0].second_moment == alone.second_moment);
  for (const Result& each : all) {
    EXPECT_TRUE(each.parameters == alone.parameters);
    EXPECT_EQ(each.losses, alone.losses);
    EXPECT_EQ(each.norms, alone.norms);
  }
}

constexpr SliceSchedule kEarlySchedules[] = {SliceSchedule::kWfbp, SliceSchedule::kPriority};

TEST(ServerTable, HasTheBitsOfOneWorkerThoughItLeavesEarly) {
  for (const int workers : {1, 2, 3}) {
    for (const double clip : {0.0, 0.01}) {
      for (const SliceSchedule schedule : kEarlySchedules) {
        Training training = wide_training();
        training.workers = workers;
        training.servers.servers = std::min(workers, 2);
        training.servers.schedule = schedule;
        training.optimizer.max_grad_norm = clip;
        expect_bits_of_one(training,
                           fmt::format("{} workers, clip {}, {}", workers, clip, name(schedule)));
      }
    }
  }
}

TEST(ServerTable, MayBeCutAnywhere) {
  Training training = wide_training();
  training.workers = 2;
  training.servers.servers = 2;
  training.servers.slice_mb = 0.00025;  // 64 elements
  training.servers.credit_mb = 0.001;
  ASSERT_GT(owed_in(training).cuts, 20u);
  for (const SliceSchedule schedule : kEarlySchedules) {
    training.servers.schedule = schedule;
    expect_bits_of_one(training, std::string(name(schedule)));
  }
}

TEST(ServerTable, OfEveryModelLeavesEarly) {
  for (const nn::Tiny model :
       {nn::Tiny::kOddGpt2, nn::Tiny::kOddLlama, nn::Tiny::kBert, nn::Tiny::kEncoderDecoder}) {
    for (const nn::Recompute recompute : {nn::Recompute::kNone, nn::Recompute::kFull}) {
      Training training = wide_training();
      training.model = model;
      training.recompute = recompute;
      training.workers = 2;
      training.servers.servers = 2;
      expect_bits_of_one(training, nn::name(model));
    }
  }
}

TEST(ServerTable, AShareMayBeEmpty) {
  Training training = wide_training();
  training.workers = 3;
  training.micro_batches = 2;
  expect_bits_of_one(training, "two micro-batches for three workers");
}

TEST(ServerTable, ComesWithAScaledLossThatMayBeTooLarge) {
  Training training = wide_training();
  training.workers = 2;
  training.dtype = DType::kF16;
  for (const double scale : {1024.0, 1e30}) {
    training.loss_scale = scale;
    ASSERT_GT(owed_in(training).slices, 0u);
    const Result alone = train_alone(training);
    for (const Result& each : train_with_servers(training)) {
      EXPECT_TRUE(each.parameters == alone.parameters) << scale;
      EXPECT_EQ(std::isfinite(each.norms.front()), std::isfinite(alone.norms.front())) << scale;
    }
  }
}

TEST(ServerTable, HasTheBitsOfFifoIn16BitsAndOnAnEmulatedLink) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Training training = wide_training();
    training.workers = 2;
    training.servers.servers = 2;
    training.dtype = training.gradient = dtype;
    training.emulate = "200Mbit,100us";
    training.servers.schedule = SliceSchedule::kFifo;
    EXPECT_FALSE(table_of(training));
    const std::vector<Result> fifo = train_with_servers(training);
    for (const SliceSchedule schedule : kEarlySchedules) {
      training.servers.schedule = schedule;
      ASSERT_GT(owed_in(training).slices, 0u);
      EXPECT_TRUE(train_with_servers(training) == fifo) << name(dtype) << ' ' << name(schedule);
    }
  }
}

TEST(ServerTable, StaysWhereGradientsComeOnceOnly) {
  Training training = wide_training();
  training.workers = 2;
  training.compression.compression = Compression::kInt8;
  EXPECT_FALSE(table_of(training));
  training = wide_training();
  training.servers.consistency = Consistency::kAsp;
  EXPECT_FALSE(table_of(training));
  training = wide_training();
  training.reduction = Reduction::kTree;
  EXPECT_FALSE(table_of(training)) << "several micro-batches";
  training.micro_batches = 1;
  EXPECT_TRUE(table_of(training));
  training.wide = false;
  EXPECT_FALSE(table_of(training)) << "most rows are in every batch";
}

// ---- the server

struct RecordingWire final : ServerWire {
  void to_worker(int worker, OutMessage message) override {
    if (message.header.kind == Kind::kTaken || worker != 0) return;
    kinds.push_back(message.header.kind);
    bytes.assign(message.payload.begin(), message.payload.end());
  }
  void to_control(int, OutMessage) override {}
  void to_server(int, OutMessage) override {}

  std::vector<Kind> kinds;       // sent to worker 0
  std::vector<std::byte> bytes;  // of the last one
};

constexpr std::size_t kElements = 96;
constexpr int kWorkers = 2;

struct OneSlice {
  OneSlice() { request(); }

  void request() {
    for (int worker = 0; worker < kWorkers; ++worker) {
      const std::string asked = RoundRequest{.updates = 0, .rate = 0.1, .loss_scale = 1}.encode();
      service.request(worker, {.kind = Kind::kRequest, .round = 1},
                      std::as_bytes(std::span(asked)));
    }
  }
  Header header(Kind kind, std::size_t elements) const {
    return {.kind = kind, .slice = 0, .round = 1, .number = 1, .bytes = elements * sizeof(float)};
  }
  void owe(int worker, const Runs& runs) {
    const std::vector<std::uint64_t> numbers = encode_runs(runs);
    const std::string payload = Packer().list(std::span<const std::uint64_t>(numbers)).take();
    service.owe(worker, header(Kind::kOwe, 0), std::as_bytes(std::span(payload)));
  }
  void push(int worker, const std::vector<float>& gradients) {
    const Header pushed = header(Kind::kPush, gradients.size());
    std::ranges::copy(std::as_bytes(std::span(gradients)), service.place(worker, pushed).begin());
    service.push(worker, pushed);
  }
  void rows(int worker, const std::vector<float>& values) {
    const Header came = header(Kind::kRows, values.size());
    const std::span<std::byte> place = service.place(worker, came);
    std::ranges::copy(std::as_bytes(std::span(values)), place.begin());
    service.rows(worker, came, place);
  }
  void work() {
    while (service.has_work()) service.work();
  }
  std::vector<float> parameters() const {
    std::vector<float> values(wire.bytes.size() / sizeof(float));
    std::memcpy(values.data(), wire.bytes.data(), wire.bytes.size());
    return values;
  }

  ServerOptions options{.schedule = SliceSchedule::kWfbp};
  std::unique_ptr<Ops> ops = make_cpu_ops(1);
  RecordingWire wire;
  SliceService service{
      options, {.slices = {{{0, kElements}, 40, 0, 0}}, .optimizer = {.max_grad_norm = 0}},
      0,       kWorkers,
      *ops,    wire};
};

std::vector<float> numbered(float factor) {
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = factor * static_cast<float>(i + 1);
  return values;
}

TEST(ServerTable, OtherRowsAreUpdatedAndSentBeforeThoseThatAreOwedHaveCome) {
  const std::vector<float> whole = numbered(1);
  OneSlice at_once;
  at_once.push(0, whole);
  at_once.push(1, whole);
  at_once.work();
  ASSERT_EQ(at_once.wire.kinds, std::vector{Kind::kParameters});
  const std::vector<float> expected = at_once.parameters();

  OneSlice apart;
  const Runs first = {{8, 8}};
  const Runs second = {{12, 4}, {60, 2}};
  std::vector<float> early = whole;
  for (std::size_t i = 8; i < 16; ++i) early[i] = -1;
  apart.owe(0, first);
  apart.push(0, early);
  apart.owe(1, second);
  EXPECT_FALSE(apart.service.has_work()) << "a worker has not pushed yet";
  early = whole;
  for (const std::size_t i : {12u, 13u, 14u, 15u, 60u, 61u}) early[i] = -1;
  apart.push(1, early);
  apart.work();
  ASSERT_EQ(apart.wire.kinds, std::vector{Kind::kEarly});
  const Runs either = united(first, second);
  for (std::size_t i = 0; i < kElements; ++i) {
    EXPECT_EQ(apart.parameters()[i], bits_of(either, kElements)[i] ? 0 : expected[i]) << i;
  }
  EXPECT_EQ(apart.service.missing(), (std::vector{0, 1}));
  apart.rows(1, {13, 14, 15, 16, 61, 62});
  EXPECT_FALSE(apart.service.has_work()) << "worker 0 still owes some";
  EXPECT_EQ(apart.service.missing(), std::vector{0});
  apart.rows(0, {9, 10, 11, 12, 13, 14, 15, 16});
  apart.work();
  ASSERT_EQ(apart.wire.kinds, (std::vector{Kind::kEarly, Kind::kRows}));
  Unpacker rows(apart.wire.bytes);
  EXPECT_EQ(decode_runs(rows.list<std::uint64_t>(), kElements), either);
  const std::string_view values = rows.text();
  std::vector<float> all(kElements);
  put_runs(either, sizeof(float), std::as_bytes(std::span(values)),
           std::as_writable_bytes(std::span(all)));
  for (std::size_t i = 0; i < kElements; ++i) {
    EXPECT_EQ(all[i], bits_of(either, kElements)[i] ? expected[i] : 0) << i;
  }
}

TEST(ServerTable, WhatComesBeforeTheOtherWorkerIsNotSentApart) {
  OneSlice slice;
  slice.owe(0, {{8, 8}});
  slice.push(0, numbered(1));
  slice.rows(0, {1, 2, 3, 4, 5, 6, 7, 8});
  slice.push(1, numbered(2));
  slice.work();
  EXPECT_EQ(slice.wire.kinds, std::vector{Kind::kParameters});
}

TEST(ServerTable, RowsOutOfTurnAreRefused) {
  OneSlice slice;
  EXPECT_THROW(slice.rows(0, {1}), Error) << "nothing is owed";
  EXPECT_THROW(slice.owe(0, {}), Error);
  EXPECT_THROW(slice.owe(0, {{90, 7}}), Error) << "beyond the slice";
  slice.owe(0, {{8, 2}});
  EXPECT_THROW(slice.owe(0, {{8, 2}}), Error) << "twice";
  EXPECT_THROW(slice.rows(0, {1, 2}), Error) << "before the slice";
  slice.push(0, numbered(1));
  EXPECT_THROW(slice.owe(0, {{8, 2}}), Error) << "behind the slice";
  EXPECT_THROW(slice.rows(0, {1, 2, 3}), Error) << "too many";
  EXPECT_THROW(slice.rows(1, {1, 2}), Error) << "another worker's";
  slice.rows(0, {1, 2});
  EXPECT_THROW(slice.rows(0, {1, 2}), Error) << "twice";
}

}  // namespace
}  // namespace lockstep::parallel::server_test
