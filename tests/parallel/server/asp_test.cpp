// Workers that do not wait for each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/parallel/server/server_strategy.h"
#include "lockstep/parallel/server/service/coordinator.h"
#include "lockstep/parallel/server/service/slice_service.h"
#include "lockstep/parallel/server/wire/step_messages.h"
#include "tests/parallel/server/fixture.h"

namespace lockstep::parallel::server_test {
namespace {

using ::testing::ElementsAre;

constexpr Consistency kLoose[] = {Consistency::kAsp, Consistency::kSsp};

// Where workers report what they do, and can be held up until something has happened.
struct Watch {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int, int> done;                               // shares by worker
  std::map<int, std::int64_t> under_way;                 // steps by worker
  std::set<std::pair<std::int64_t, std::int64_t>> seen;  // step and first micro-batch
  std::int64_t furthest_ahead = 0;
  int total = 0;

  void begin(int worker, const Share& share) {
    const std::lock_guard lock(mutex);
    under_way[worker] = share.step;
    for (const auto& [other, step] : under_way) {
      furthest_ahead = std::max(furthest_ahead, share.step - step);
    }
    EXPECT_TRUE(seen.insert({share.step, share.first_micro_batch}).second) << "done twice";
  }
  void end(int worker) {
    {
      const std::lock_guard lock(mutex);
      under_way.erase(worker);
      ++done[worker];
      ++total;
    }
    changed.notify_all();
  }
};

TEST(ServerAsp, EveryShareOfTheRunIsDoneOnce) {
  for (const Consistency consistency : kLoose) {
    for (const SliceSchedule schedule :
         {SliceSchedule::kFifo, SliceSchedule::kWfbp, SliceSchedule::kPriority}) {
      for (const double clip : {0.0, 0.5}) {
        Training training;
        training.workers = 3;
        training.micro_batches = 6;
        training.servers = {.servers = 2,
                            .consistency = consistency,
                            .staleness = 1,
                            .schedule = schedule,
                            .slice_mb = 0.003};
        training.optimizer.max_grad_norm = clip;
        Watch watch;
        train_with_servers(
            training,
            {.before_share = [&](int worker, const Share& share) { watch.begin(worker, share); },
             .after_share = [&](int worker, const Share&,
                                const StepSummary&) { watch.end(worker); }});
        EXPECT_EQ(watch.total, training.steps * training.workers);
      }
    }
  }
}

TEST(ServerAsp, OneWorkerIsTheSameAsWithBsp) {
  for (const Consistency consistency : kLoose) {
    Training training;
    training.servers.consistency = consistency;
    training.servers.slice_mb = 0.003;
    training.optimizer.max_grad_norm = 0.1;
    const Result alone = train_alone(training);
    const std::vector<Result> worker = train_with_servers(training);
    EXPECT_TRUE(worker[0].master == alone.master);
    EXPECT_TRUE(worker[0].first_moment == alone.first_moment);
    EXPECT_EQ(worker[0].norms, alone.norms);
  }
}

// Server 0's word to workers.
struct HeardWire final : ServerWire {
  void to_worker(int, OutMessage) override {}
  void to_control(int worker, OutMessage message) override {
    heard[worker].push_back(message.header.kind);
    words[worker].assign(reinterpret_cast<const char*>(message.payload.data()),
                         message.payload.size());
  }
  void to_server(int, OutMessage) override {}

  std::map<int, std::vector<Kind>> heard;
  std::map<int, std::string> words;  // the last
};

struct TraceCase {
  TraceCase() { options.consistency = Consistency::kAsp; }
  void say(int worker, Kind kind, const std::string& payload = {}) {
    coordinator.take(worker, {.kind = kind}, std::as_bytes(std::span(payload)));
  }
  void want_share(int worker) {
    say(worker, Kind::kTicket, Packer().add(std::int64_t{0}).add(std::int64_t{100}).take());
  }
  std::int64_t share_of_worker(int worker) {
    return Unpacker(std::as_bytes(std::span(wire.words.at(worker)))).take<std::int64_t>();
  }
  std::uint64_t traces_at_worker_0() {
    return Unpacker(std::as_bytes(std::span(wire.words.at(0)))).take<std::uint64_t>();
  }

  ServerOptions options;
  HeardWire wire;
  Coordinator coordinator{options, 3, wire};
};

TEST(CoordinatorTraces, GoToWorker0WhichHearsWhenAllHaveCome) {
  TraceCase one;
  one.say(2, Kind::kTrace, "of worker 2");
  EXPECT_THAT(one.wire.heard[2], ElementsAre(Kind::kTraced)) << "it may leave";
  EXPECT_EQ(one.wire.words[0], "of worker 2");
  one.say(0, Kind::kTrace);
  EXPECT_THAT(one.wire.heard[0], ElementsAre(Kind::kTrace));
  one.coordinator.without(2);
  EXPECT_THAT(one.wire.heard[0], ElementsAre(Kind::kTrace));
  one.say(1, Kind::kTrace, "of worker 1");
  EXPECT_THAT(one.wire.heard[0], ElementsAre(Kind::kTrace, Kind::kTrace, Kind::kTraced));
  EXPECT_EQ(one.traces_at_worker_0(), 2u);
}

TEST(CoordinatorTraces, AreWithoutTheDeadAndTheLate) {
  TraceCase dead;
  dead.say(0, Kind::kTrace);
  dead.say(1, Kind::kTrace, "of worker 1");
  dead.coordinator.without(2);
  EXPECT_THAT(dead.wire.heard[0], ElementsAre(Kind::kTrace, Kind::kTraced));
  EXPECT_EQ(dead.traces_at_worker_0(), 1u);

  TraceCase late;
  const auto timeout = std::chrono::hours(1);
  EXPECT_EQ(late.coordinator.traces_deadline(timeout), kNoDeadline);
  late.say(0, Kind::kTrace);
  EXPECT_FALSE(has_passed(late.coordinator.traces_deadline(timeout)));
  EXPECT_TRUE(has_passed(late.coordinator.traces_deadline({})));
  late.coordinator.end_traces();
  EXPECT_EQ(late.traces_at_worker_0(), 0u);
  EXPECT_EQ(late.coordinator.traces_deadline(timeout), kNoDeadline);
  late.coordinator.without(1);
  late.coordinator.without(2);
  EXPECT_THAT(late.wire.heard[0], ElementsAre(Kind::kTraced)) << "once";
}

TEST(Coordinator, TheShareOfAWorkerThatStopsIsForOthersButWithWorker0TheRunIsOver) {
  TraceCase one;
  one.want_share(0);
  one.want_share(1);
  EXPECT_EQ(one.share_of_worker(1), 1);
  one.say(1, Kind::kStop);
  one.want_share(2);
  EXPECT_EQ(one.share_of_worker(2), 1);
  one.say(2, Kind::kDone, encode(StepCost{}));
  one.say(0, Kind::kStop);
  one.want_share(2);
  EXPECT_EQ(one.share_of_worker(2), -1);
  EXPECT_EQ(one.coordinator.deadline(std::chrono::hours(1)), kNoDeadline) << "nobody waits";
}

TEST(Coordinator, TheFirstShareIsOfWorker0HoweverLateItBegins) {
  TraceCase one;
  one.want_share(1);
  one.want_share(2);
  EXPECT_TRUE(one.wire.heard.empty()) << "worker 0 has not begun";
  EXPECT_THAT(one.coordinator.missing(), ElementsAre(0));
  EXPECT_TRUE(has_passed(one.coordinator.deadline({})));
  one.want_share(0);
  EXPECT_EQ(one.share_of_worker(0), 0);
  EXPECT_EQ(one.share_of_worker(1), 1);
  EXPECT_EQ(one.share_of_worker(2), 2);

  TraceCase stopped;
  stopped.want_share(1);
  stopped.say(0, Kind::kStop);
  EXPECT_EQ(stopped.share_of_worker(1), -1) << "worker 0 ends the run before its first share";
}

TEST(CoordinatorTraces, ComeOnceAndNotWithBsp) {
  TraceCase one;
  one.say(1, Kind::kTrace, "of worker 1");
  EXPECT_THROW(one.say(1, Kind::kTrace, "of worker 1"), Error);
  TraceCase bsp;
  bsp.options.consistency = Consistency::kBsp;
  EXPECT_THROW(bsp.say(1, Kind::kTrace), Error);
}

// Worker 1 does not continue before all other shares are done. If another worker waited for it, the
// run would never end.
TEST(ServerAsp, NobodyWaitsForASlowWorker) {
  Training training;
  training.workers = 3;
  training.steps = 5;
  training.servers.consistency = Consistency::kAsp;
  Watch watch;
  const int others = training.steps * training.workers - 1;
  train_with_servers(
      training,
      {.before_share =
           [&](int worker, const Share& share) {
             watch.begin(worker, share);
             if (worker != 1) return;
             std::unique_lock lock(watch.mutex);
             EXPECT_TRUE(watch.changed.wait_for(lock, std::chrono::seconds(60), [&] {
               return watch.total - watch.done[1] >= others;
             }));
           },
       .after_share = [&](int worker, const Share&, const StepSummary&) { watch.end(worker); }});
  EXPECT_LE(watch.done[1], 1);
  EXPECT_EQ(watch.total, training.steps * training.workers);
}

TEST(ServerSsp, NobodyIsFurtherAheadThanTheBound) {
  for (const int staleness : {0, 2}) {
    Training training;
    training.workers = 3;
    training.steps = 6;
    training.servers.consistency = Consistency::kSsp;
    training.servers.staleness = staleness;
    Watch watch;
    // Worker 2 takes its time with each share, of which one is of the first step: until the others
    // have begun what they may. Servers know that a share is done before its worker does, so that a
    // share is watched only as long as none of it has been pushed.
    train_with_servers(training, {.before_share = [&](int worker, const Share& share) {
                         watch.begin(worker, share);
                         watch.changed.notify_all();
                         const std::int64_t allowed =
                             std::min<std::int64_t>(share.step + staleness, training.steps);
                         std::unique_lock lock(watch.mutex);
                         EXPECT_TRUE(watch.changed.wait_for(lock, std::chrono::seconds(60), [&] {
                           if (worker != 2) return share.step > 1 || watch.seen.size() >= 3;
                           return watch.total >= allowed * training.workers - 1;
                         }));
                         lock.unlock();
                         watch.end(worker);
                       }});
    EXPECT_LE(watch.furthest_ahead, staleness);
    EXPECT_EQ(watch.furthest_ahead, staleness) << "the bound is used";
    EXPECT_EQ(watch.total, training.steps * training.workers);
  }
}

TEST(ServerAsp, TellsHowStaleGradientsWere) {
  Training training;
  training.workers = 2;
  training.servers.consistency = Consistency::kAsp;
  training.steps = 4;
  Watch watch;
  std::map<int, double> most;
  // Worker 1 is at its first share while worker 0 does five. The servers have made four or five
  // updates by then, which is known when its next share ends. By then the slices of that share,
  // with a staleness of 0 or more, may have come back too and halve the mean.
  const auto before_share = [&](int worker, const Share& share) {
    watch.begin(worker, share);
    watch.changed.notify_all();
    std::unique_lock lock(watch.mutex);
    const bool came = watch.changed.wait_for(lock, std::chrono::seconds(60), [&] {
      if (worker == 1) return watch.total >= 5;
      return watch.seen.size() >= 2 && (watch.total < 5 || watch.done[1] == 2);
    });
    EXPECT_TRUE(came);
  };
  const auto after_share = [&](int worker, const Share&, const StepSummary& summary) {
    watch.end(worker);
    const std::lock_guard lock(watch.mutex);
    most[worker] =
        std::max(most[worker], summary.costs.at(static_cast<std::size_t>(worker)).staleness);
  };
  train_with_servers(training, {.before_share = before_share, .after_share = after_share});
  EXPECT_GE(most[1], 2);
  EXPECT_LE(most[1], 5);
}

// A worker announces the update of its next round while slices of the last one wait for credit.
TEST(ServerAsp, TheNextRoundMayBeAskedForBeforeThisOneHasCome) {
  Training training;
  training.servers.consistency = Consistency::kAsp;
  training.servers.slice_mb = 0.003;
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  const ServedLayout layout = layout_for(job_of(training), make_trainee(training, *ops).plan());
  SilentWire wire;
  SliceService service(training.servers, layout, 0, 1, *ops, wire);
  const auto ask = [&](std::uint64_t round) {
    const std::string request = RoundRequest{.updates = 0, .rate = 1e-3}.encode();
    service.request(0, {.kind = Kind::kRequest, .round = round}, std::as_bytes(std::span(request)));
  };
  const auto push = [&](std::uint32_t slice, std::uint64_t round) {
    const Header header{.kind = Kind::kPush,
                        .slice = slice,
                        .round = round,
                        .bytes = layout.slices[slice].range.elements * sizeof(float)};
    std::ranges::fill(service.place(0, header), std::byte{0});
    service.push(0, header);
  };
  ask(1);
  push(0, 1);
  ask(2);
  EXPECT_NO_THROW(push(1, 1));
  EXPECT_NO_THROW(push(1, 2));
  EXPECT_THROW(push(1, 3), Error) << "nobody has asked for it";
}

// What a worker is sent last.
struct LastParameters final : ServerWire {
  std::vector<std::byte> parameters;

  void to_worker(int, OutMessage message) override {
    if (message.header.kind != Kind::kParameters) return;
    parameters.assign(message.payload.begin(), message.payload.end());
  }
  void to_control(int, OutMessage) override {}
  void to_server(int, OutMessage) override {}
};

// Three workers make three updates of a step, each by a third of its sequences.
void expect_parts_of_a_step(Consistency consistency) {
  Training training;
  training.workers = 3;
  training.servers.consistency = consistency;
  training.optimizer = {
      .kind = optim::OptimizerKind::kSgd, .momentum = 0, .weight_decay = 0, .max_grad_norm = 0};
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  const ServedLayout layout = layout_for(job_of(training), make_trainee(training, *ops).plan());
  LastParameters wire;
  SliceService service(training.servers, layout, 0, training.workers, *ops, wire);
  const std::size_t elements = layout.slices[0].range.elements;
  const Header start{.kind = Kind::kState, .slice = 0, .bytes = elements * sizeof(float)};
  std::ranges::fill(service.place(0, start), std::byte{0});
  service.take_state(start);
  for (int worker = 0; worker < training.workers; ++worker) {
    const std::string request = RoundRequest{.updates = 0, .rate = 0.75}.encode();
    service.request(worker, {.kind = Kind::kRequest, .round = 1},
                    std::as_bytes(std::span(request)));
    const Header push{
        .kind = Kind::kPush, .slice = 0, .round = 1, .bytes = elements * sizeof(float)};
    const std::vector<float> gradient(elements, 1.0F);
    std::ranges::copy(std::as_bytes(std::span(gradient)), service.place(worker, push).begin());
    service.push(worker, push);
    ASSERT_EQ(wire.parameters.size(), elements * sizeof(float));
    const auto* parameters = reinterpret_cast<const float*>(wire.parameters.data());
    EXPECT_THAT(
        std::vector(parameters, parameters + elements),
        ::testing::Each(::testing::FloatNear(-0.25F * static_cast<float>(worker + 1), 1e-6F)));
  }
}

TEST(ServerAsp, AnUpdateIsAPartOfAStep) {
  for (const Consistency consistency : kLoose) expect_parts_of_a_step(consistency);
}

TEST(ServerAsp, RefusesAScaledLoss) {
  Training training;
  training.dtype = DType::kF16;
  training.servers.consistency = Consistency::kAsp;
  try {
    train_with_servers(training);
    FAIL() << "f16 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("bf16"));
  }
}

}  // namespace
}  // namespace lockstep::parallel::server_test
