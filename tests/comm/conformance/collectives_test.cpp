// Half of the suite that every backend passes: each collective, type, operation, path and algorithm
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

using testing::block_element;
using testing::element_of;
using testing::expected_reduced;
using testing::input_of;
using testing::make_element;
using testing::on_every_size;
using testing::on_ranks;

constexpr ReduceOp::Kind kOps[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax,
                                   ReduceOp::kMean};

// Which buffers lie in symmetric memory.
enum class Symmetric { kNone, kAll, kInputs, kOutputs, kOfEvenRanks };
constexpr std::string_view kSymmetricNames[] = {"private", "symmetric", "symmetric inputs",
                                                "symmetric outputs", "symmetric on even ranks"};

enum class Side { kIn, kOut };

// Memory for a test: symmetric or private, the same to use.
template <class T>
class Memory {
 public:
  Memory(Communicator& comm, std::size_t count, Symmetric which, Side side) {
    const bool allocated = which == Symmetric::kAll || which == Symmetric::kOfEvenRanks ||
                           (which == Symmetric::kInputs && side == Side::kIn) ||
                           (which == Symmetric::kOutputs && side == Side::kOut);
    if (allocated) symmetric_ = comm.allocate(count * sizeof(T));  // by all ranks, or by none
    if (allocated && (which != Symmetric::kOfEvenRanks || comm.rank() % 2 == 0)) {
      span_ = symmetric_.as<T>().first(count);
    } else {
      private_.resize(count);
      span_ = private_;
    }
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
  Symmetric symmetric = Symmetric::kNone;
  bool in_place = false;
  ReduceOp::Kind op = ReduceOp::kSum;
  std::string algorithm;
};

std::string text(const Case& c, int ranks) {
  return fmt::format("{} ranks, count {}, {}, {}, {} {}", ranks, c.count,
                     kSymmetricNames[static_cast<int>(c.symmetric)],
                     c.in_place ? "in place" : "out of place", name(ReduceOp(c.op)), c.algorithm);
}

// A gtest assertion per element takes most of the time of the suite.
template <class T, class Expected>
void expect_elements(std::span<T> got, const std::string& of, Expected&& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (const T wanted = expected(i); got[i] != wanted) {
      ADD_FAILURE() << of << " at " << i << ": " << ::testing::PrintToString(got[i])
                    << " instead of " << ::testing::PrintToString(wanted);
      return;
    }
  }
}

template <class T>
void check_all_reduce(Communicator& comm, const Case& c) {
  const Memory<T> in(comm, c.count, c.symmetric, Side::kIn);
  const Memory<T> out(comm, c.count, c.symmetric, Side::kOut);
  in.fill(input_of<T>(comm.rank(), c.count));
  const auto result = c.in_place ? in.span() : out.span();
  comm.run(all_reduce(in.span(), result, c.op).with(c.algorithm));
  expect_elements(result, text(c, comm.size()),
                  [&](std::size_t i) { return expected_reduced<T>(comm.size(), i, c.op); });
}

template <class T>
void check_reduce(Communicator& comm, const Case& c, int root) {
  const Memory<T> in(comm, c.count, c.symmetric, Side::kIn);
  const Memory<T> out(comm, c.count, c.symmetric, Side::kOut);
  in.fill(input_of<T>(comm.rank(), c.count));
  const bool is_root = comm.rank() == root;
  const auto result = c.in_place ? in.span() : out.span();
  comm.run(reduce(in.span(), is_root ? Data(result) : Data(nullptr, 0, dtype_of<T>), c.op, root)
               .with(c.algorithm));
  if (is_root) {
    expect_elements(result, text(c, comm.size()),
                    [&](std::size_t i) { return expected_reduced<T>(comm.size(), i, c.op); });
  }
  if (!is_root && !c.in_place) {
    EXPECT_THAT(std::vector<T>(in.span().begin(), in.span().end()),
                ::testing::ContainerEq(input_of<T>(comm.rank(), c.count)));
  }
}

template <class T>
void check_broadcast(Communicator& comm, const Case& c, int root) {
  const Memory<T> data(comm, c.count, c.symmetric, Side::kOut);
  if (comm.rank() == root) data.fill(input_of<T>(root, c.count));
  comm.run(broadcast(data.span(), root).with(c.algorithm));
  expect_elements(data.span(), text(c, comm.size()),
                  [&](std::size_t i) { return make_element<T>(element_of(root, i)); });
}

template <class T>
void check_all_gather(Communicator& comm, const Case& c) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto r = static_cast<std::size_t>(comm.rank());
  const Memory<T> in(comm, c.count, c.symmetric, Side::kIn);
  const Memory<T> out(comm, c.count * n, c.symmetric, Side::kOut);
  const auto mine = c.in_place ? out.span().subspan(r * c.count, c.count) : in.span();
  for (std::size_t i = 0; i < c.count; ++i) mine[i] = block_element<T>(comm.rank(), 0, i);
  comm.run(all_gather(mine, out.span()).with(c.algorithm));
  expect_elements(out.span(), text(c, comm.size()), [&](std::size_t k) {
    return block_element<T>(static_cast<int>(k / c.count), 0, k % c.count);
  });
}

template <class T>
void check_reduce_scatter(Communicator& comm, const Case& c) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto r = static_cast<std::size_t>(comm.rank());
  const Memory<T> in(comm, c.count * n, c.symmetric, Side::kIn);
  const Memory<T> out(comm, c.count, c.symmetric, Side::kOut);
  in.fill(input_of<T>(comm.rank(), c.count * n));
  const auto result = c.in_place ? in.span().subspan(r * c.count, c.count) : out.span();
  comm.run(reduce_scatter(in.span(), result, c.op).with(c.algorithm));
  expect_elements(result, text(c, comm.size()), [&](std::size_t i) {
    return expected_reduced<T>(comm.size(), r * c.count + i, c.op);
  });
}

template <class T>
void check_all_to_all(Communicator& comm, const Case& c) {
  const auto n = static_cast<std::size_t>(comm.size());
  const Memory<T> in(comm, c.count * n, c.symmetric, Side::kIn);
  const Memory<T> out(comm, c.count * n, c.symmetric, Side::kOut);
  for (std::size_t k = 0; k < c.count * n; ++k) {
    in.span()[k] = block_element<T>(comm.rank(), static_cast<int>(k / c.count), k % c.count);
  }
  const auto result = c.in_place ? in.span() : out.span();
  comm.run(all_to_all(in.span(), result).with(c.algorithm));
  expect_elements(result, text(c, comm.size()), [&](std::size_t k) {
    return block_element<T>(static_cast<int>(k / c.count), comm.rank(), k % c.count);
  });
}

template <class T>
void check_gather(Communicator& comm, const Case& c, int root) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto r = static_cast<std::size_t>(comm.rank());
  const bool is_root = comm.rank() == root;
  const Memory<T> in(comm, c.count, c.symmetric, Side::kIn);
  const Memory<T> out(comm, c.count * n, c.symmetric, Side::kOut);
  const auto mine = c.in_place && is_root ? out.span().subspan(r * c.count, c.count) : in.span();
  for (std::size_t i = 0; i < c.count; ++i) mine[i] = block_element<T>(comm.rank(), 0, i);
  comm.run(gather(mine, is_root ? Data(out.span()) : Data(nullptr, 0, dtype_of<T>), root)
               .with(c.algorithm));
  if (!is_root) return;
  expect_elements(out.span(), text(c, comm.size()), [&](std::size_t k) {
    return block_element<T>(static_cast<int>(k / c.count), 0, k % c.count);
  });
}

template <class T>
void check_scatter(Communicator& comm, const Case& c, int root) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto r = static_cast<std::size_t>(comm.rank());
  const bool is_root = comm.rank() == root;
  const Memory<T> in(comm, c.count * n, c.symmetric, Side::kIn);
  const Memory<T> out(comm, c.count, c.symmetric, Side::kOut);
  for (std::size_t k = 0; is_root && k < c.count * n; ++k) {
    in.span()[k] = block_element<T>(root, static_cast<int>(k / c.count), k % c.count);
  }
  const auto mine = c.in_place && is_root ? in.span().subspan(r * c.count, c.count) : out.span();
  comm.run(scatter(is_root ? ConstData(in.span()) : ConstData(nullptr, 0, dtype_of<T>), mine, root)
               .with(c.algorithm));
  expect_elements(mine, text(c, comm.size()),
                  [&](std::size_t i) { return block_element<T>(root, comm.rank(), i); });
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

class EveryCollective : public ::testing::TestWithParam<Collective> {};

// Counts around the limits of the inline, one-shot, symmetric and windowed paths.
TEST_P(EveryCollective, OddCountsOnEveryPath) {
  on_every_size([](Communicator& comm) {
    for (std::size_t count : {0, 1, 3, 63, 64, 65, 1000, 2048, 4099, 20011}) {
      for (const Symmetric symmetric : {Symmetric::kNone, Symmetric::kAll}) {
        for (bool in_place : {false, true}) {
          check<float>(comm, GetParam(), {count, symmetric, in_place}, comm.size() - 1);
        }
      }
    }
  });
}

TEST_P(EveryCollective, BuffersOfWhichSomeAreSymmetric) {
  on_every_size([](Communicator& comm) {
    for (const Symmetric symmetric :
         {Symmetric::kInputs, Symmetric::kOutputs, Symmetric::kOfEvenRanks}) {
      for (std::size_t count : {0, 65, 1000, 20011}) {
        for (bool in_place : {false, true}) {
          check<float>(comm, GetParam(), {count, symmetric, in_place}, comm.size() / 2);
        }
      }
    }
  });
}

TEST_P(EveryCollective, LargeVectors) {
  for (int ranks : {2, 3, 4}) {
    if (ranks > testing::most_ranks()) continue;
    on_ranks(ranks, [](Communicator& comm) {
      for (const Symmetric symmetric : {Symmetric::kNone, Symmetric::kAll}) {
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
              const auto symmetric = count == 777 ? Symmetric::kAll : Symmetric::kNone;
              check<decltype(element)>(comm, GetParam(), {count, symmetric, false, op}, 0);
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
        const auto symmetric = count == 500 ? Symmetric::kAll : Symmetric::kNone;
        check<std::int32_t>(comm, GetParam(), {count, symmetric, true}, root);
      }
    }
  });
}

TEST_P(EveryCollective, EveryAlgorithmOfTheSchedules) {
  on_every_size([](Communicator& comm) {
    if (!testing::has_schedules(comm)) return;
    for (const schedule::Algorithm& algorithm : schedule::algorithms(GetParam())) {
      schedule::Shape shape;
      shape.ranks = comm.size();
      if (algorithm.refuses(shape)) continue;
      for (std::size_t count : {0, 1, 7, 1000, 30'001}) {
        for (bool in_place : {false, true}) {
          const Case c{count, Symmetric::kNone, in_place, ReduceOp::kSum,
                       std::string(algorithm.name)};
          check<float>(comm, GetParam(), c, comm.size() / 2);
        }
      }
      const Case mean{100, Symmetric::kNone, false, ReduceOp::kMean, std::string(algorithm.name)};
      check<double>(comm, GetParam(), mean, 0);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Collectives, EveryCollective, ::testing::ValuesIn(kScheduledCollectives),
                         [](const auto& tested) { return std::string(name(tested.param)); });

}  // namespace
}  // namespace lockstep
