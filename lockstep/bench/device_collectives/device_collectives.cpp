#include "lockstep/bench/device_collectives/device_collectives.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/bench/statistics.h"
#include "lockstep/comm/device_communicator.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::bench {
namespace {

Call call_of(Collective op, const SymmetricBuffer& in, const SymmetricBuffer& out,
             std::size_t count, int ranks) {
  const std::size_t part = count / static_cast<std::size_t>(ranks);
  const auto data = [](const SymmetricBuffer& buffer, std::size_t elements) {
    return Data(buffer.data(), elements, DType::kF32);
  };
  switch (op) {
    case Collective::kAllGather:
      return all_gather(data(in, part), data(out, count));
    case Collective::kReduceScatter:
      return reduce_scatter(data(in, count), data(out, part));
    case Collective::kAllToAll:
      return all_to_all(data(in, count), data(out, count));
    case Collective::kBroadcast:
      return broadcast(data(in, count), 0);
    default:
      return all_reduce(data(in, count));
  }
}

// Read and written by all ranks, with the kernels of comm/cuda.
double touched(const Call& call, std::size_t bytes, int ranks, bool is_small) {
  const auto size = static_cast<double>(bytes);
  const auto n = static_cast<double>(ranks);
  switch (call.kind) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return n * 2 * size;
    case Collective::kReduceScatter:
      return n * (size + size / n);
    case Collective::kBroadcast:
      return (n - 1) * 2 * size;
    default:
      return is_small ? n * (n + 3) * size : n * (3 - 1 / n) * size;
  }
}

// Calls of one stretch, so that its length is measured well.
int calls_of(std::size_t bytes) {
  constexpr double kBytes = 1 << 28;
  return static_cast<int>(std::clamp(kBytes / static_cast<double>(bytes + 1), 10.0, 500.0));
}

double slowest(Communicator& world, double seconds) {
  double most = seconds;
  world.all_reduce(std::span(&most, 1), ReduceOp::kMax);
  return most;
}

// Sums of ones double with every call; kept small by starting again.
void check_sum(Communicator& group, const Call& call) {
  if (call.kind != Collective::kAllReduce) return;
  const std::vector<float> ones(call.in.count, 1.0f);
  DeviceMemory& memory = memory_of(group.device());
  const std::size_t bytes = call.in.count * sizeof(float);
  memory.copy(call.out.bytes, reinterpret_cast<const std::byte*>(ones.data()), bytes);
  group.run(call);
  std::vector<float> sums(call.in.count);
  memory.copy(reinterpret_cast<std::byte*>(sums.data()), call.out.bytes, bytes);
  const auto expected = static_cast<float>(group.size());
  if (std::ranges::all_of(sums, [&](float sum) { return sum == expected; })) return;
  fail(ErrorCode::kMismatch, "{} gave another sum than {}", describe(call), expected);
}

double copy_rate(Ops& ops, Device device) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  constexpr int kCopies = 20;
  const Buffer from(kBytes, device), to(kBytes, device);
  const auto run = [&] {
    for (int i = 0; i < kCopies; ++i) {
      ops.in_order([&] { memory_of(device).copy(to.data(), from.data(), kBytes); });
    }
  };
  run();
  const Moment begin = ops.moment();
  run();
  const Moment end = ops.moment();
  return 2.0 * kCopies * kBytes / end.seconds_since(begin);
}

}  // namespace

DeviceReport time_device_collectives(const DeviceCollectives& bench, Communicator& world) {
  const auto group =
      make_device_communicator(world.split(0, world.rank()),
                               {.device = bench.device, .backend = comm_options().device_backend});
  const auto ops = make_ops(bench.device, 1);
  DeviceReport report;
  if (world.rank() == 0) report.copy_rate = copy_rate(*ops, bench.device);
  world.barrier();
  const auto unit = static_cast<std::size_t>(world.size()) * sizeof(float);
  for (const Collective op : bench.ops) {
    for (const std::size_t asked : bench.sizes) {
      const std::size_t bytes = std::max(asked / unit, std::size_t{1}) * unit;
      const SymmetricBuffer in = group->allocate(bytes);
      const SymmetricBuffer out = group->allocate(bytes);
      const Call call = call_of(op, in, out, bytes / sizeof(float), world.size());
      check_sum(*group, call);
      memory_of(bench.device).fill_zero(in.data(), bytes);
      const int calls = calls_of(bytes);
      std::vector<double> seconds;
      for (int turn = 0; turn < bench.turns + 2; ++turn) {
        world.barrier();
        const Moment begin = ops->moment();
        for (int i = 0; i < calls; ++i) ops->in_order([&] { group->run(call); });
        const Moment end = ops->moment();
        ops->synchronize();
        if (const auto failure = group->failure()) throw Error(*failure);
        const double mine = end.seconds_since(begin) / calls;
        const double all = slowest(world, mine);
        if (turn >= 2) seconds.push_back(all);
      }
      std::ranges::sort(seconds);
      const std::string algorithm = group->choice(call).algorithm;
      report.timings.push_back(
          {.op = op,
           .bytes = bytes,
           .algorithm = algorithm,
           .seconds = quantile(seconds, 0.5),
           .touched_bytes = touched(call, bytes, world.size(), algorithm == "one_shot")});
    }
  }
  return report;
}

}  // namespace lockstep::bench
