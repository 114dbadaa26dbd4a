// One rank of a job whose GPU memory NCCL connects; started by nccl_test.cpp through the launcher.
// With LOCKSTEP_COMM_DEVICE_BACKEND=hierarchical kernels connect the ranks of each node.
// A rank that finds a wrong result says so and exits with 1. An error of the communicator goes to
// $DIR/error-RANK, and the rank exits with 3:
//   <code> <ranks, comma-separated> <steady clock in ns when noticed> <message>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/comm/device_communicator.h"
#include "lockstep/launch/make_world.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/tensor/stream.h"

namespace {

using namespace lockstep;

constexpr Device kGpu{DeviceKind::kCuda, 0};

struct WrongResult {
  std::string text;
};

void expect(bool is_right, const std::string& text) {
  if (!is_right) throw WrongResult{text};
}

void write_file(const std::string& name, const std::string& text) {
  const std::filesystem::path folder = std::getenv("DIR");
  std::ofstream(folder / (name + ".part")) << text;
  std::filesystem::rename(folder / (name + ".part"), folder / name);
}

DeviceBackend backend() {
  const DeviceBackend wanted = comm_options().device_backend;
  return wanted == DeviceBackend::kAuto ? DeviceBackend::kNccl : wanted;
}

std::unique_ptr<Communicator> on_gpu(Communicator& world, bool tree_order = false,
                                     std::chrono::nanoseconds timeout = comm_options().timeout) {
  return make_device_communicator(world.split(0, world.rank()),
                                  {.device = kGpu,
                                   .timeout = timeout,
                                   .backend = backend(),
                                   .tree_order = tree_order,
                                   .at_once = world.size()});  // all share the GPU
}

// An array in GPU memory.
template <class T>
class Values {
 public:
  explicit Values(const std::vector<T>& values)
      : count_(values.size()), buffer_(values.size() * sizeof(T), kGpu) {
    memory_of(kGpu).copy(buffer_.data(), reinterpret_cast<const std::byte*>(values.data()),
                         buffer_.bytes());
  }
  Data data() const { return {buffer_.data(), count_, dtype_of<T>}; }
  std::byte* bytes() const { return buffer_.data(); }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    memory_of(kGpu).copy(reinterpret_cast<std::byte*>(values.data()), buffer_.data(),
                         buffer_.bytes());
    return values;
  }

 private:
  std::size_t count_;
  Buffer buffer_;
};

float value_of(int rank, std::size_t i) {
  return std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(rank));
}

template <class T>
T rounded(float value) {
  if constexpr (std::is_same_v<T, Half>) return to_half(value);
  if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(value);
  if constexpr (std::is_same_v<T, float>) return value;
}

template <class T>
float widened(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return to_float(value);
  }
}

// Of ranks [first, end), as a balanced tree, in 32 bits.
template <class T>
float tree_sum(int first, int end, std::size_t i) {
  if (end - first == 1) return widened(rounded<T>(value_of(first, i)));
  int left = 1;
  while (left * 2 < end - first) left *= 2;
  return tree_sum<T>(first, first + left, i) + tree_sum<T>(first + left, end, i);
}

// In two levels: of the nodes of `places` ranks first, each rounded, then of these.
template <class T>
float sum_of_nodes(int first_node, int end_node, int places, std::size_t i) {
  if (end_node - first_node == 1) {
    return widened(rounded<T>(tree_sum<T>(first_node * places, end_node * places, i)));
  }
  int left = 1;
  while (left * 2 < end_node - first_node) left *= 2;
  return sum_of_nodes<T>(first_node, first_node + left, places, i) +
         sum_of_nodes<T>(first_node + left, end_node, places, i);
}

// `places`: ranks of a node that are summed first; 0: all are one tree.
template <class T>
void check_sums(Communicator& group, std::size_t count, int places = 0) {
  std::vector<T> mine(count);
  for (std::size_t i = 0; i < count; ++i) mine[i] = rounded<T>(value_of(group.rank(), i));
  const auto is_sum = [&](T got, std::size_t i) {
    return got == rounded<T>(places == 0 ? tree_sum<T>(0, group.size(), i)
                                         : sum_of_nodes<T>(0, group.size() / places, places, i));
  };
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::string of = fmt::format("of {} {}", count, name(dtype_of<T>));
  const Values<T> all(mine);
  group.all_reduce(all.data());
  const Values<T> in(mine);
  const Values<T> reduced(mine);
  group.reduce(in.data(), group.rank() == 1 ? reduced.data() : Data(), ReduceOp::kSum, 1);
  const std::size_t block = count / ranks;
  const Values<T> part{std::vector<T>(block)};
  group.reduce_scatter(ConstData(in.bytes(), block * ranks, dtype_of<T>), part.data());
  const std::vector<T> sums = all.get(), at_root = reduced.get(), scattered = part.get();
  for (std::size_t i = 0; i < count; ++i) {
    expect(is_sum(sums[i], i), fmt::format("all_reduce {}, element {}", of, i));
    expect(group.rank() != 1 || is_sum(at_root[i], i), fmt::format("reduce {}, {}", of, i));
  }
  for (std::size_t i = 0; i < block; ++i) {
    expect(is_sum(scattered[i], static_cast<std::size_t>(group.rank()) * block + i),
           fmt::format("reduce_scatter {}, element {}", of, i));
  }
}

// In the order of a tree; 16-bit elements always, in two levels node by node.
void sum(Communicator& world) {
  const auto ordered = on_gpu(world, true);
  const auto usual = on_gpu(world);
  const bool in_levels = backend() == DeviceBackend::kHierarchical;
  const int places = in_levels ? world.size() / comm_options().emulated_nodes : 0;
  for (std::size_t count : {1000, 20'011, 5'000'003}) {  // one step, one round, several rounds
    check_sums<float>(*ordered, count);
    check_sums<Half>(*ordered, count);
    check_sums<Half>(*usual, count, places);
    check_sums<BFloat16>(*usual, count, places);
  }
}

void extremes(Communicator& world) {
  const auto group = on_gpu(world);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp::Kind op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const Values<float> values(
        {group->rank() == 1 ? nan : 1.0f, static_cast<float>(group->rank())});
    group->all_reduce(values.data(), op);
    const std::vector<float> got = values.get();
    expect(std::isnan(got[0]), "NaN is lost in " + std::string(name(ReduceOp(op))));
    const float expected = op == ReduceOp::kMin ? 0 : static_cast<float>(group->size() - 1);
    expect(got[1] == expected, fmt::format("{} instead of {}", got[1], expected));
  }
}

// Copies and collectives of two streams, of memory that is not symmetric.
void streams(Communicator& world) {
  constexpr std::size_t kCount = 300'000;
  constexpr int kRounds = 20;
  const auto group = on_gpu(world);
  const Values<float> source(std::vector<float>(kCount, static_cast<float>(group->rank() + 1)));
  const Values<float> a(std::vector<float>(kCount, 0.0f));
  const Values<BFloat16> b(std::vector<BFloat16>(kCount, to_bfloat16(1.0f)));
  Stream first(kGpu), second(kGpu);
  for (int round = 0; round < kRounds; ++round) {
    first.run([&] {
      memory_of(kGpu).copy(a.bytes(), source.bytes(), kCount * sizeof(float));
      group->run(all_reduce(a.data()));
    });
    second.wait(first.record());
    second.run([&] { group->run(all_reduce(a.data(), ReduceOp::kMax)); });
    second.run([&] { group->run(all_reduce(b.data(), ReduceOp::kMean)); });
    first.wait(second.record());
    first.run([&] { group->run(barrier()); });
  }
  first.synchronize();
  second.synchronize();
  expect(!group->failure(), "the group has failed");
  const auto sum = static_cast<float>(group->size() * (group->size() + 1) / 2);
  for (const float got : a.get()) expect(got == sum, fmt::format("{} instead of {}", got, sum));
  for (const BFloat16 got : b.get()) expect(got == to_bfloat16(1.0f), "another mean");
  group->barrier();
}

void capture_call(Communicator& world) {
  const auto group = on_gpu(world);
  const Values<float> values(std::vector<float>(100, 1.0f));
  const auto ops = make_cuda_ops(0);
  try {
    capture(*ops, [&] { ops->in_order([&] { group->run(all_reduce(values.data())); }); });
    expect(false, "a call was captured");
  } catch (const Error& error) {
    expect(std::string_view(error.what()).find("cannot be captured") != std::string_view::npos,
           error.what());
  }
  group->all_reduce(values.data());  // still works
}

void disagree(Communicator& world, const std::string& how) {
  const auto group = on_gpu(world);
  const bool odd = world.rank() == 1;
  const Values<float> values(std::vector<float>(600'000, 1.0f));
  const auto first = [&](std::size_t count) { return Data(values.bytes(), count, DType::kF32); };
  group->barrier();
  if (how == "count") group->all_reduce(first(odd ? 500'000 : 600'000));
  if (how == "operation") group->all_reduce(first(10), odd ? ReduceOp::kMax : ReduceOp::kSum);
  if (how == "root") group->broadcast(first(10), odd ? 1 : 0);
  if (how == "collective") odd ? group->barrier() : group->all_reduce(first(10));
  if (how == "allocation") group->allocate(odd ? 8192 : 4096);
  if (how == "blocks") {
    const auto ranks = static_cast<std::size_t>(world.size());
    std::vector<std::size_t> in(ranks, 5), out(ranks, 5);
    if (odd) out[0] = 6;
    group->all_to_all_v(Data(values.bytes(), 5 * ranks, DType::kF32), in,
                        Data(values.bytes() + 1000, 5 * ranks + (odd ? 1 : 0), DType::kF32), out);
  }
  if (how == "stream") {
    Stream stream(kGpu);
    stream.run([&] { group->run(all_reduce(first(odd ? 11 : 12))); });
    stream.synchronize();
  }
}

// Rank 1 does not come.
void stay_away(Communicator& world) {
  const auto group = on_gpu(world);
  const Values<float> values(std::vector<float>(1000, 1.0f));
  group->barrier();
  if (world.rank() == 1) ::pause();
  group->all_reduce(values.data());
}

// Rank 1 comes, but its GPU has other work for longer than the deadline.
void be_busy(Communicator& world) {
  constexpr std::chrono::seconds kDeadline(4);
  // Twice the deadline and more; a longer queue than this the GPU does not take at once.
  constexpr std::size_t kBytes = std::size_t{24} << 30;
  constexpr int kCopies = 900;
  on_gpu(world)->barrier();  // the first connection takes longer
  const auto group = on_gpu(world, false, kDeadline);
  const Values<float> values(std::vector<float>(100'000, 1.0f));
  const Buffer from(world.rank() == 1 ? kBytes : 1, kGpu), to(from.bytes(), kGpu);
  group->barrier();
  Stream stream(kGpu);
  for (int i = 0; world.rank() == 1 && i < kCopies; ++i) {
    stream.run([&] { memory_of(kGpu).copy(to.data(), from.data(), kBytes); });
  }
  stream.run([&] { group->run(all_reduce(values.data())); });
  stream.synchronize();
  if (const auto failure = group->failure()) throw *failure;
}

void loop(Communicator& world) {
  const auto group = on_gpu(world);
  const Values<float> values(std::vector<float>(1 << 20, 1.0f));
  const Values<BFloat16> halves(std::vector<BFloat16>(1 << 20, to_bfloat16(1.0f)));
  for (std::size_t i = 0;; ++i) {
    const std::size_t count = std::size_t{1} << (i % 20);
    group->all_reduce(Data(values.bytes(), count, DType::kF32));
    group->all_reduce(Data(halves.bytes(), count, DType::kBF16));
    if (i == 5) write_file("running-" + std::to_string(world.rank()), std::to_string(::getpid()));
  }
}

void abort_rank(Communicator& world) {
  const auto group = on_gpu(world);
  const Values<float> values(std::vector<float>(1000, 1.0f));
  group->barrier();
  if (world.rank() == 1) group->abort("the disk is full");
  group->all_reduce(values.data());
}

// Communicators that are closed give their memory back.
void make_often(Communicator& world) {
  const auto free_bytes = [&] {
    world.barrier();
    const std::size_t free = free_cuda_memory(0);
    world.barrier();
    return free;
  };
  const auto make_and_close = [&] {
    const auto group = on_gpu(world);
    const Values<BFloat16> values(std::vector<BFloat16>(1 << 20, to_bfloat16(1.0f)));
    group->all_reduce(values.data());
    const auto pair = group->split(world.rank() / 2, 0);
    pair->all_reduce(values.data());
  };
  for (int i = 0; i < 2; ++i) make_and_close();  // what NCCL keeps it has taken then
  const std::size_t before = free_bytes();
  for (int i = 0; i < 5; ++i) make_and_close();
  const std::size_t after = free_bytes();
  constexpr std::size_t kSlack = std::size_t{32} << 20;
  expect(after + kSlack > before, fmt::format("{} bytes are free, {} were", after, before));
}

// Of a hierarchical communicator the bytes are planned, whatever it is asked for.
void take_planned_bytes(Communicator& world) {
  const std::size_t before = memory_in_use(kGpu);
  const Values<BFloat16> values(std::vector<BFloat16>(1 << 20, to_bfloat16(1.0f)));
  for (const bool tree_order : {false, true}) {
    const auto group = on_gpu(world, tree_order);
    const SymmetricBuffer memory = group->allocate(kSymmetricPage);
    group->all_reduce(values.data());
    group->all_reduce(memory.as<float>());
    group->barrier();
    const std::size_t taken = memory_in_use(kGpu) - before;
    const std::size_t planned = device_communicator_bytes(backend(), world.machines(), false) +
                                kSymmetricPage + values.data().count * sizeof(BFloat16);
    expect(taken == planned, fmt::format("{} bytes instead of the planned {}", taken, planned));
  }
}

// Vectors in symmetric memory, which go without copies, and a part of them that does not divide.
void sum_symmetric(Communicator& world) {
  constexpr std::size_t kCount = 5'000'003;
  const auto group = on_gpu(world, true);
  const SymmetricBuffer memory = group->allocate(kCount * sizeof(float));
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = value_of(group->rank(), i);
  memory_of(kGpu).copy(memory.data(), reinterpret_cast<const std::byte*>(values.data()),
                       kCount * sizeof(float));
  Stream stream(kGpu);
  stream.run([&] { group->run(all_reduce(memory.as<float>())); });
  stream.synchronize();
  memory_of(kGpu).copy(reinterpret_cast<std::byte*>(values.data()), memory.data(),
                       kCount * sizeof(float));
  for (std::size_t i = 0; i < kCount; ++i) {
    expect(values[i] == tree_sum<float>(0, group->size(), i), fmt::format("element {}", i));
  }
  group->barrier();
}

void run(Communicator& world, const std::string& what, const std::string& how) {
  if (what == "sum") return sum(world);
  if (what == "extremes") return extremes(world);
  if (what == "streams") return streams(world);
  if (what == "capture") return capture_call(world);
  if (what == "disagree") return disagree(world, how);
  if (what == "away") return stay_away(world);
  if (what == "busy") return be_busy(world);
  if (what == "loop") return loop(world);
  if (what == "abort") return abort_rank(world);
  if (what == "often") return make_often(world);
  if (what == "bytes") return take_planned_bytes(world);
  if (what == "symmetric") return sum_symmetric(world);
  throw WrongResult{"there is no task " + what};
}

void report(const Error& error, int rank) {
  const auto now = SteadyClock::now().time_since_epoch();
  std::string ranks;
  for (const int culprit : error.ranks()) {
    ranks += (ranks.empty() ? "" : ",") + std::to_string(culprit);
  }
  write_file("error-" + std::to_string(rank),
             fmt::format("{} {} {} {}", static_cast<int>(error.code()), ranks.empty() ? "-" : ranks,
                         std::chrono::nanoseconds(now).count(), error.what()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "info") {
    const NcclInfo info = nccl_info();
    fmt::print("{}{}\n", info.version, info.problem);
    return 0;
  }
  const auto world = make_world();
  try {
    run(*world, what, argc > 2 ? argv[2] : "");
  } catch (const Error& error) {
    report(error, world->rank());
    fmt::print(stderr, "rank {}: {}\n", world->rank(), error.what());
    return 3;
  } catch (const WrongResult& wrong) {
    fmt::print(stderr, "rank {}: {}\n", world->rank(), wrong.text);
    return 1;
  }
  return 0;
}
