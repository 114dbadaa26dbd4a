// What calls will send between ranks, before there are any.
#include "lockstep/comm/native/planned_calls.h"

#include <gtest/gtest.h>

#include <atomic>

#include "lockstep/base/error.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/comm/schedule/instance.h"
#include "lockstep/comm/schedule/verify.h"

namespace lockstep::planned_calls_test {
namespace {

struct Spread {
  int ranks;
  int machines;
};
constexpr Spread kSpreads[] = {{2, 2}, {3, 2}, {4, 2}, {5, 3}, {6, 2}, {8, 2}, {7, 7}};
constexpr std::size_t kCounts[] = {0, 1, 7, 1001, 70'003};

CommOptions on_hosts(int hosts, const std::string& link) {
  CommOptions options;
  options.emulated_nodes = hosts;
  options.emulate = link;
  options.cache_dir.clear();
  return options;
}

// Of every collective, with elements of `memory`; all its ranks' calls are the same but for who
// gets something.
std::vector<Call> calls_of(int rank, int ranks, std::size_t count, std::vector<float>& memory) {
  const auto n = static_cast<std::size_t>(ranks);
  const int root = ranks - 1;
  memory.assign(3 * n * count + 1, 1.0f);
  const Data one(memory.data(), count, DType::kF32);
  const Data all(memory.data() + n * count, n * count, DType::kF32);
  const Data other(memory.data() + 2 * n * count, n * count, DType::kF32);
  return {all_reduce(one),
          broadcast(one, root),
          reduce(one, rank == root ? Data(all.bytes, count, DType::kF32) : Data(), ReduceOp::kSum,
                 root),
          all_gather(one, all),
          reduce_scatter(all, one),
          all_to_all(all, other)};
}

TEST(PlannedCalls, SendAcrossWhatRanksThenDo) {
  for (const Spread& spread : kSpreads) {
    for (const char* link : {"", "10Gbit,1us"}) {
      const CommOptions options = on_hosts(spread.machines, link);
      PlannedCalls planned(spread.ranks, spread.machines, options);
      for (const std::size_t count : kCounts) {
        std::vector<float> memory;
        const std::size_t calls = calls_of(0, spread.ranks, count, memory).size();
        std::vector<std::atomic<std::uint64_t>> across(calls);
        run_threads(
            spread.ranks,
            [&](Communicator& world) {
              std::vector<float> mine;
              const auto all = calls_of(world.rank(), world.size(), count, mine);
              for (std::size_t i = 0; i < calls; ++i) {
                const std::uint64_t before = world.bytes_across().value();
                world.run(all[i]);
                across[i] += world.bytes_across().value() - before;
              }
            },
            options);
        const auto all = calls_of(0, spread.ranks, count, memory);
        for (std::size_t i = 0; i < calls; ++i) {
          EXPECT_EQ(planned.sent(all[i]).across, across[i])
              << describe(all[i]) << " of " << spread.ranks << " ranks on " << spread.machines
              << " machines, " << link;
        }
      }
    }
  }
}

// The verifier counts by itself, in chunks.
TEST(PlannedCalls, SendInAllWhatTheVerifierCounts) {
  for (const Spread& spread : kSpreads) {
    PlannedCalls planned(spread.ranks, spread.machines, on_hosts(spread.machines, ""));
    for (const schedule::Algorithm& algorithm : schedule::algorithms(Collective::kAllReduce)) {
      schedule::Shape shape;
      shape.ranks = spread.ranks;
      for (int rank = 0; rank < spread.ranks; ++rank) {
        shape.machines.push_back(emulated_node(rank, spread.ranks, spread.machines));
      }
      if (algorithm.refuses(shape)) continue;
      const auto traffic = schedule::count_traffic(schedule::make_schedule(algorithm, shape));
      const auto elements = static_cast<std::size_t>(algorithm.chunks(shape)) * 5;
      const Call call = all_reduce(Data(nullptr, elements, DType::kF64)).with(algorithm.name);
      const LinkBytes bytes = planned.sent(call);
      EXPECT_DOUBLE_EQ(static_cast<double>(bytes.inside + bytes.across),
                       traffic.sent_in_all() * static_cast<double>(elements * sizeof(double)))
          << algorithm.name << " of " << spread.ranks;
    }
  }
}

TEST(PlannedCalls, RefuseWhatTheirCommunicatorWould) {
  PlannedCalls planned(3, 2, on_hosts(2, ""));
  const Call call = all_reduce(Data(nullptr, 5, DType::kF32));
  EXPECT_THROW(planned.sent(Call(call).with("ringg")), Error);
  EXPECT_THROW(planned.sent(Call(call).with("fused")), Error);
}

}  // namespace
}  // namespace lockstep::planned_calls_test
