// The one suite that every backend passes: each collective, type, operation, path and algorithm
// against the oracle. See ranks.h for how it runs on threads and on processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "lockstep/comm/schedule/schedule.h"
#include "tests/comm/oracle.h"
#include "tests/comm/ranks.h"

namespace lockstep {
namespace {

using testing::element_of;
using testing::expected_reduced;
using testing::input_of;
using testing::make_element;
using testing::on_ranks;

constexpr ReduceOp::Kind kOps[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax,
                                   ReduceOp::kMean};

// Memory for a test: symmetric or private, the same to use.
template <class T>
class Memory {
 public:
  Memory(Communicator& comm, std::size_t count, bool symmetric) : private_(symmetric ? 0 : count) {
    if (symmetric) symmetric_ = comm.allocate(count * sizeof(T));
    span_ = symmetric ? symmetric_.as<T>().first(count) : std::span<T>(private_);
  }
  std::span<T> span() const { return span_; }
  void fill(const std::vector<T>& values) const {
    std::copy(values.begin(), values.end(), span_.begin());
  }

 private:
  std::vector<T> private_;
  SymmetricBuffer symmetric_;
  std::span<T> span_;
};

struct Case {
  std::size_t count;
  bool symmetric = false;
  bool in_place = false;
  ReduceOp::Kind op = ReduceOp::kSum;
  std::string algorithm;
};

std::string text(const Case& c, int ranks) {
  return fmt::format("{} ranks, count {}, {}, {}, {} {}", ranks, c.count,
                     c.symmetric ? "symmetric" : "private",
                     c.in_place ? "in place" : "out of place", name(ReduceOp(c.op)), c.algorithm);
}

template <class T>
void check_all_reduce(Communicator& comm, const Case& c) {
  const Memory<T> in(comm, c.count, c.symmetric);
  const Memory<T> out(comm, c.count, c.symmetric);
  in.fill(input_of<T>(comm.rank(), c.count));
  const auto result = c.in_place ? in.span() : out.span();
  comm.run(all_reduce(in.span(), result, c.op).with(c.algorithm));
  for (std::size_t i = 0; i < c.count; ++i) {
    ASSERT_EQ(result[i], (expected_reduced<T>(comm.size(), i, c.op)))
        << text(c, comm.size()) << " at " << i;
  }
}

template <class T>
void check_reduce(Communicator& comm, const Case& c, int root) {
  const Memory<T> in(comm, c.count, c.symmetric);
  const Memory<T> out(comm, c.count, c.symmetric);
  in.fill(input_of<T>(comm.rank(), c.count));
  const bool is_root = comm.rank() == root;
  const auto result = c.in_place ? in.span() : out.span();
  comm.run(reduce(in.span(), is_root ? Data(result) : Data(nullptr, 0, dtype_of<T>), c.op, root)
               .with(c.algorithm));
  for (std::size_t i = 0; is_root && i < c.count; ++i) {
    ASSERT_EQ(result[i], (expected_reduced<T>(comm.size(), i, c.op)))
        << text(c, comm.size()) << " at " << i;
  }
  if (!is_root && !c.in_place) {
    EXPECT_THAT(std::vector<T>(in.span().begin(), in.span().end()),
                ::testing::ContainerEq(input_of<T>(comm.rank(), c.count)));
  }
}

template <class T>
void check_broadcast(Communicator& comm, const Case& c, int root) {
  const Memory<T> data(comm, c.count, c.symmetric);
  if (comm.rank() == root) data.fill(input_of<T>(root, c.count));
  comm.run(broadcast(data.span(), root).with(c.algorithm));
  for (std::size_t i = 0; i < c.count; ++i) {
    ASSERT_EQ(data.span()[i], make_element<T>(element_of(root, i)))
        << text(c, comm.size()) << " at " << i;
  }
}

// Element i of the block that rank `from` has for everyone, or for rank `to`.
template <class T>
T block_element(int from, int to, std::size_t i) {
  return make_element<T>(element_of(from + 3 * to, i));
}

template <class T>
void check_all_gather(Communicator& comm, const Case& c) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto r = static_cast<std::size_t>(comm.rank());
  const Memory<T> in(comm, c.count, c.symmetric);
  const Memory<T> out(comm, c.count * n, c.symmetric);
  const auto mine = c.in_place ? out.span().subspan(r * c.count, c.count) : in.span();
  for (std::size_t i = 0; i < c.count; ++i) mine[i] = block_element<T>(comm.rank(), 0, i);
  comm.run(all_gather(mine, out.span()).with(c.algorithm));
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < c.count; ++i) {
      ASSERT_EQ(out.span()[j * c.count + i], block_element<T>(static_cast<int>(j), 0, i))
          << text(c, comm.size());
    }
  }
}

template <class T>
void check_reduce_scatter(Communicator& comm, const Case& c) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto r = static_cast<std::size_t>(comm.rank());
  const Memory<T> in(comm, c.count * n, c.symmetric);
  const Memory<T> out(comm, c.count, c.symmetric);
  in.fill(input_of<T>(comm.rank(), c.count * n));
  const auto result = c.in_place ? in.span().subspan(r * c.count, c.count) : out.span();
  comm.run(reduce_scatter(in.span(), result, c.op).with(c.algorithm));
  for (std::size_t i = 0; i < c.count; ++i) {
    ASSERT_EQ(result[i], (expected_reduced<T>(comm.size(), r * c.count + i, c.op)))
        << text(c, comm.size());
  }
}

template <class T>
void check_all_to_all(Communicator& comm, const Case& c) {
  const auto n = static_cast<std::size_t>(comm.size());
  const Memory<T> in(comm, c.count * n, c.symmetric);
  const Memory<T> out(comm, c.count * n, c.symmetric);
  for (std::size_t k = 0; k < c.count * n; ++k) {
    in.span()[k] = block_element<T>(comm.rank(), static_cast<int>(k / c.count), k % c.count);
  }
  const auto result = c.in_place ? in.span() : out.span();
  comm.run(all_to_all(in.span(), result).with(c.algorithm));
  for (std::size_t k = 0; k < c.count * n; ++k) {
    ASSERT_EQ(result[k], block_element<T>(static_cast<int>(k / c.count), comm.rank(), k % c.count))
        << text(c, comm.size()) << " at " << k;
  }
}

template <class T>
void check_gather(Communicator& comm, const Case& c, int root) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto r = static_cast<std::size_t>(comm.rank());
  const bool is_root = comm.rank() == root;
  const Memory<T> in(comm, c.count, c.symmetric);
  const Memory<T> out(comm, c.count * n, c.symmetric);
  const auto mine = c.in_place && is_root ? out.span().subspan(r * c.count, c.count) : in.span();
  for (std::size_t i = 0; i < c.count; ++i) mine[i] = block_element<T>(comm.rank(), 0, i);
  comm.run(gather(mine, is_root ? Data(out.span()) : Data(nullptr, 0, dtype_of<T>), root)
               .with(c.algorithm));
  for (std::size_t k = 0; is_root && k < c.count * n; ++k) {
    ASSERT_EQ(out.span()[k], block_element<T>(static_cast<int>(k / c.count), 0, k % c.count))
        << text(c, comm.size());
  }
}

template <class T>
void check_scatter(Communicator& comm, const Case& c, int root) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto r = static_cast<std::size_t>(comm.rank());
  const bool is_root = comm.rank() == root;
  const Memory<T> in(comm, c.count * n, c.symmetric);
  const Memory<T> out(comm, c.count, c.symmetric);
  for (std::size_t k = 0; is_root && k < c.count * n; ++k) {
    in.span()[k] = block_element<T>(root, static_cast<int>(k / c.count), k % c.count);
  }
  const auto mine = c.in_place && is_root ? in.span().subspan(r * c.count, c.count) : out.span();
  comm.run(scatter(is_root ? ConstData(in.span()) : ConstData(nullptr, 0, dtype_of<T>), mine, root)
               .with(c.algorithm));
  for (std::size_t i = 0; i < c.count; ++i) {
    ASSERT_EQ(mine[i], block_element<T>(root, comm.rank(), i)) << text(c, comm.size());
  }
}

template <class T>
void check(Communicator& comm, Collective kind, const Case& c, int root) {
  switch (kind) {
    case Collective::kBroadcast:
      return check_broadcast<T>(comm, c, root);
    case Collective::kScatter:
      return check_scatter<T>(comm, c, root);
    case Collective::kGather:
      return check_gather<T>(comm, c, root);
    case Collective::kReduce:
      return check_reduce<T>(comm, c, root);
    case Collective::kAllReduce:
      return check_all_reduce<T>(comm, c);
    case Collective::kAllGather:
      return check_all_gather<T>(comm, c);
    case Collective::kReduceScatter:
      return check_reduce_scatter<T>(comm, c);
    case Collective::kAllToAll:
      return check_all_to_all<T>(comm, c);
    default:
      return;
  }
}

void on_every_size(const std::function<void(Communicator&)>& body) {
  for (int ranks = 1; ranks <= testing::most_ranks(); ++ranks) on_ranks(ranks, body);
}

class EveryCollective : public ::testing::TestWithParam<Collective> {};

// Counts around the limits of the inline, one-shot, symmetric and windowed paths.
TEST_P(EveryCollective, OddCountsOnEveryPath) {
  on_every_size([](Communicator& comm) {
    for (std::size_t count : {0, 1, 3, 63, 64, 65, 1000, 2048, 4099, 20011}) {
      for (bool symmetric : {false, true}) {
        for (bool in_place : {false, true}) {
          check<float>(comm, GetParam(), {count, symmetric, in_place}, comm.size() - 1);
        }
      }
    }
  });
}

TEST_P(EveryCollective, LargeVectors) {
  for (int ranks : {2, 3, 4}) {
    if (ranks > testing::most_ranks()) continue;
    on_ranks(ranks, [](Communicator& comm) {
      for (bool symmetric : {false, true}) {
        for (bool in_place : {false, true}) {
          check<float>(comm, GetParam(), {700'001, symmetric, in_place}, 0);
        }
      }
    });
  }
}

TEST_P(EveryCollective, EveryTypeAndOperation) {
  for (int ranks : {1, 2, 3, 5}) {
    if (ranks > testing::most_ranks()) continue;
    on_ranks(ranks, [](Communicator& comm) {
      for (DType dtype : kAllDTypes) {
        for (ReduceOp::Kind op : kOps) {
          for (std::size_t count : {5, 777, 30'000}) {
            with_type(dtype, [&](auto element) {
              check<decltype(element)>(comm, GetParam(), {count, count == 777, false, op}, 0);
            });
          }
          if (!reduces(GetParam())) break;
        }
      }
    });
  }
}

TEST_P(EveryCollective, EveryRoot) {
  if (!has_root(GetParam())) GTEST_SKIP();
  on_every_size([](Communicator& comm) {
    for (int root = 0; root < comm.size(); ++root) {
      for (std::size_t count : {1, 500, 40'000}) {
        check<std::int32_t>(comm, GetParam(), {count, count == 500, true}, root);
      }
    }
  });
}

TEST_P(EveryCollective, EveryAlgorithmOfTheSchedules) {
  on_every_size([](Communicator& comm) {
    if (comm.backend() == "mpi") return;
    for (const schedule::Algorithm& algorithm : schedule::algorithms(GetParam())) {
      schedule::Shape shape;
      shape.ranks = comm.size();
      if (algorithm.refuses(shape)) continue;
      for (std::size_t count : {0, 1, 7, 1000, 30'001}) {
        for (bool in_place : {false, true}) {
          const Case c{count, false, in_place, ReduceOp::kSum, std::string(algorithm.name)};
          check<float>(comm, GetParam(), c, comm.size() / 2);
        }
      }
      const Case mean{100, false, false, ReduceOp::kMean, std::string(algorithm.name)};
      check<double>(comm, GetParam(), mean, 0);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Collectives, EveryCollective, ::testing::ValuesIn(kScheduledCollectives),
                         [](const auto& info) { return std::string(name(info.param)); });

// Sizes that differ from rank to rank, zero among them.
std::vector<std::size_t> varying_counts(int ranks, std::size_t unit) {
  std::vector<std::size_t> counts;
  for (int r = 0; r < ranks; ++r)
    counts.push_back(unit * static_cast<std::size_t>((r * 5 + 1) % 4));
  return counts;
}

TEST(Varying, AllGatherGatherAndScatter) {
  on_every_size([](Communicator& comm) {
    for (std::size_t unit : {1, 33, 9000, 120'000}) {
      const std::vector<std::size_t> counts = varying_counts(comm.size(), unit);
      const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      const std::size_t mine = counts[static_cast<std::size_t>(comm.rank())];
      std::vector<std::int32_t> expected;
      for (int r = 0; r < comm.size(); ++r) {
        for (std::size_t i = 0; i < counts[static_cast<std::size_t>(r)]; ++i) {
          expected.push_back(block_element<std::int32_t>(r, 0, i));
        }
      }
      std::vector<std::int32_t> in(mine);
      for (std::size_t i = 0; i < mine; ++i) in[i] = block_element<std::int32_t>(comm.rank(), 0, i);
      std::vector<std::int32_t> all(total);
      comm.run(all_gather_v(in, all, counts));
      EXPECT_EQ(all, expected);

      const int root = comm.size() - 1;
      const bool is_root = comm.rank() == root;
      std::vector<std::int32_t> gathered(is_root ? total : 0);
      comm.run(gather_v(in, gathered, counts, root));
      if (is_root) EXPECT_EQ(gathered, expected);

      std::vector<std::int32_t> back(mine);
      comm.run(scatter_v(gathered, counts, back, root));
      EXPECT_EQ(back, in);
    }
  });
}

TEST(Varying, AllToAll) {
  on_every_size([](Communicator& comm) {
    const int n = comm.size();
    const auto size = [&](int from, int to) {
      return static_cast<std::size_t>((from * 3 + to * 2) % 5) * 700;
    };
    std::vector<std::size_t> out_counts;
    std::vector<std::size_t> in_counts;
    std::vector<float> in;
    for (int j = 0; j < n; ++j) {
      in_counts.push_back(size(comm.rank(), j));
      out_counts.push_back(size(j, comm.rank()));
      for (std::size_t i = 0; i < in_counts.back(); ++i)
        in.push_back(block_element<float>(comm.rank(), j, i));
    }
    std::vector<float> out(std::accumulate(out_counts.begin(), out_counts.end(), std::size_t{0}));
    comm.run(all_to_all_v(in, in_counts, out, out_counts));
    std::size_t at = 0;
    for (int j = 0; j < n; ++j) {
      for (std::size_t i = 0; i < out_counts[static_cast<std::size_t>(j)]; ++i) {
        ASSERT_EQ(out[at++], block_element<float>(j, comm.rank(), i));
      }
    }
  });
}

TEST(UserOperation, CombinesWithTheUsersFunction) {
  // max by magnitude
  const UserReduction largest{
      "largest magnitude",
      [](void* accumulator, const void* operand, std::size_t count, DType, void*) {
        auto* a = static_cast<float*>(accumulator);
        const auto* b = static_cast<const float*>(operand);
        for (std::size_t i = 0; i < count; ++i) {
          if (std::abs(b[i]) > std::abs(a[i])) a[i] = b[i];
        }
      },
      nullptr};
  on_every_size([&](Communicator& comm) {
    for (std::size_t count : {3, 5000, 50'000}) {
      std::vector<float> data(count);
      for (std::size_t i = 0; i < count; ++i) {
        data[i] = static_cast<float>(comm.rank() + 1) * (comm.rank() % 2 == 0 ? -1.0f : 1.0f);
      }
      comm.all_reduce(data, ReduceOp(largest));
      const float expected =
          static_cast<float>(comm.size()) * ((comm.size() - 1) % 2 == 0 ? -1.0f : 1.0f);
      EXPECT_THAT(data, ::testing::Each(expected));
    }
  });
}

TEST(PointToPoint, MessagesOfEverySizeInOrder) {
  on_every_size([](Communicator& comm) {
    if (comm.size() < 2 || comm.rank() > 1) return;
    for (std::size_t count : {0, 1, 5, 1000, 300'000}) {
      if (comm.rank() == 0) {
        comm.send(input_of<double>(0, count), 1);
        std::vector<double> back(count);
        comm.receive(back, 1);
        EXPECT_EQ(back, input_of<double>(1, count));
      } else {
        std::vector<double> data(count);
        comm.receive(data, 0);
        EXPECT_EQ(data, input_of<double>(0, count));
        comm.send(input_of<double>(1, count), 0);
      }
    }
  });
}

TEST(PointToPoint, CrossingLargeSendsDoNotBlockEachOther) {
  on_every_size([](Communicator& comm) {
    const int n = comm.size();
    constexpr std::size_t kCount = 500'000;
    const std::vector<float> mine = input_of<float>(comm.rank(), kCount);
    std::vector<std::vector<float>> theirs(static_cast<std::size_t>(n), std::vector<float>(kCount));
    std::vector<Work> works;
    for (int peer = 0; peer < n; ++peer) {
      if (peer == comm.rank()) continue;
      works.push_back(comm.start(send(mine, peer)));
      works.push_back(comm.start(receive(theirs[static_cast<std::size_t>(peer)], peer)));
    }
    for (const Work& work : works) work.wait();
    for (int peer = 0; peer < n; ++peer) {
      if (peer != comm.rank())
        EXPECT_EQ(theirs[static_cast<std::size_t>(peer)], input_of<float>(peer, kCount));
    }
  });
}

TEST(PointToPoint, SignalsAreCountedAndCarryWhatWasWritten) {
  on_every_size([](Communicator& comm) {
    if (comm.size() < 2) return;
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (int i = 0; i < 20; ++i) {
      comm.signal(next);
      comm.signal(next);
      comm.wait_signal(previous);
      comm.wait_signal(previous);
    }
  });
}

TEST(PointToPoint, CopyMovesInsideARank) {
  on_ranks(1, [](Communicator& comm) {
    std::vector<float> out(100);
    comm.copy(input_of<float>(0, 100), out);
    EXPECT_EQ(out, input_of<float>(0, 100));
    std::vector<float> later(100);
    comm.start(copy(out, later)).wait();
    EXPECT_EQ(later, out);
  });
}

TEST(Asynchronous, SeveralOperationsInFlight) {
  on_every_size([](Communicator& comm) {
    constexpr std::size_t kCount = 10'000;
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    for (int k = 0; k < 8; ++k)
      data.push_back(input_of<float>(comm.rank(), kCount + static_cast<std::size_t>(k)));
    for (auto& vector : data) works.push_back(comm.start(all_reduce(vector)));
    std::vector<float> blocking = input_of<float>(comm.rank(), 10);
    comm.all_reduce(blocking);  // keeps its place in the order
    for (const Work& work : works) {
      EXPECT_TRUE(work.wait_for(std::chrono::seconds(60)));
      EXPECT_TRUE(work.done());
      EXPECT_FALSE(work.error());
    }
    for (const auto& vector : data) {
      for (std::size_t i = 0; i < vector.size(); ++i) {
        ASSERT_EQ(vector[i], expected_reduced<float>(comm.size(), i, ReduceOp::kSum));
      }
    }
  });
}

TEST(Split, GroupsWorkSideBySide) {
  on_every_size([](Communicator& comm) {
    const int color = comm.rank() % 2;
    const auto half = comm.split(color, -comm.rank());  // reversed order
    const int expected_size = (comm.size() + 1 - color) / 2;
    ASSERT_EQ(half->size(), expected_size);
    EXPECT_EQ(half->rank(), expected_size - 1 - comm.rank() / 2);
    std::vector<std::int64_t> data = {comm.rank()};
    half->all_reduce(data);
    std::int64_t expected = 0;
    for (int r = color; r < comm.size(); r += 2) expected += r;
    EXPECT_EQ(data[0], expected);
    const auto memory = half->allocate(4096);
    std::fill(memory.as<float>().begin(), memory.as<float>().end(), 1.0f);
    half->all_reduce(memory.as<float>());
    EXPECT_EQ(memory.as<float>()[100], static_cast<float>(half->size()));
    const auto nobody = half->split(-1, 0);
    EXPECT_EQ(nobody, nullptr);
  });
}

TEST(Order, ManyRoundsOfMixedOperations) {
  on_every_size([](Communicator& comm) {
    std::vector<std::int32_t> value(1);
    std::vector<std::int32_t> all(static_cast<std::size_t>(comm.size()));
    for (int i = 0; i < 300; ++i) {
      value[0] = comm.rank() + i;
      const int root = i % comm.size();
      comm.broadcast(value, root);
      ASSERT_EQ(value[0], root + i);
      value[0] = comm.rank() * i;
      comm.all_gather(value, all);
      for (int r = 0; r < comm.size(); ++r) ASSERT_EQ(all[static_cast<std::size_t>(r)], r * i);
      comm.gather(value, comm.rank() == root ? Data(all) : Data(nullptr, 0, DType::kI32), root);
      if (i % 7 == 0) comm.barrier();
      comm.all_reduce(value);
      ASSERT_EQ(value[0], i * comm.size() * (comm.size() - 1) / 2);
    }
  });
}

}  // namespace
}  // namespace lockstep
