#include "lockstep/bench/collectives/pattern.h"

#include <gtest/gtest.h>

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

using Bytes = std::vector<std::byte>;

double value_at(const Bytes& data, DType dtype, std::size_t i) {
  return with_type(dtype, [&]<class T>(T element) -> double {
    std::memcpy(&element, data.data() + i * sizeof element, sizeof element);
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      return to_float(element);
    } else {
      return static_cast<double>(element);
    }
  });
}

void set_at(Bytes& data, DType dtype, std::size_t i, double value) {
  with_type(dtype, [&]<class T>(T element) {
    if constexpr (std::is_same_v<T, Half>) {
      element = to_half(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      element = to_bfloat16(static_cast<float>(value));
    } else {
      element = static_cast<T>(value);
    }
    std::memcpy(data.data() + i * sizeof element, &element, sizeof element);
  });
}

// The collectives as their definitions say, one element at a time.
Bytes right_answer(const Task& task, const std::vector<Bytes>& in, std::size_t me) {
  const std::size_t n = in.size();
  const Extent size = extent(task, static_cast<int>(n));
  Bytes out(size.out * size_of(task.dtype));
  for (std::size_t i = 0; i < size.out; ++i) {
    double value = 0;
    const std::size_t block = i / size.block;
    const std::size_t within = i % size.block;
    switch (task.op) {
      case Collective::kAllReduce:
        for (const Bytes& one : in) value += value_at(one, task.dtype, i);
        break;
      case Collective::kReduceScatter:
        for (const Bytes& one : in) value += value_at(one, task.dtype, me * size.block + i);
        break;
      case Collective::kBroadcast:
        value = value_at(in[static_cast<std::size_t>(task.root)], task.dtype, i);
        break;
      case Collective::kAllGather:
        value = value_at(in[block], task.dtype, within);
        break;
      default:
        value = value_at(in[block], task.dtype, me * size.block + within);
    }
    set_at(out, task.dtype, i, value);
  }
  return out;
}

std::vector<Bytes> inputs(const Task& task, int ranks, std::uint64_t call) {
  std::vector<Bytes> in;
  for (int rank = 0; rank < ranks; ++rank) {
    in.emplace_back(extent(task, ranks).in * size_of(task.dtype));
    Expectation(task, rank, ranks).write_input(in.back().data(), call);
  }
  return in;
}

TEST(Expectation, AgreesWithTheDefinitionOfEveryCollectiveForEveryType) {
  for (const Collective op : kBenchOps) {
    for (const DType dtype : kAllDTypes) {
      for (const int ranks : {1, 2, 3, 4, 7}) {
        for (const std::size_t bytes : {1u, 64u, 4096u, 20000u}) {
          const Task task{.op = op,
                          .dtype = dtype,
                          .bytes = whole_bytes(op, dtype, ranks, bytes),
                          .root = ranks - 1};
          const auto in = inputs(task, ranks, 5);
          for (int rank = 0; rank < ranks; ++rank) {
            const Bytes out = right_answer(task, in, static_cast<std::size_t>(rank));
            EXPECT_EQ(Expectation(task, rank, ranks).check_output(out.data(), 5), "")
                << name(op) << " " << name(dtype) << " " << ranks << " ranks, " << bytes;
          }
        }
      }
    }
  }
}

TEST(Expectation, NoticesAnySingleWrongElement) {
  const Task task{.op = Collective::kAllReduce, .bytes = 4 * 5000};
  const Expectation expectation(task, 0, 2);
  Bytes out = right_answer(task, inputs(task, 2, 1), 0);
  for (const std::size_t at : {0u, 1u, 1020u, 1021u, 2500u, 4999u}) {
    const double right = value_at(out, task.dtype, at);
    set_at(out, task.dtype, at, right + 1);
    EXPECT_NE(expectation.check_output(out.data(), 1).find("element " + std::to_string(at) + " "),
              std::string::npos);
    set_at(out, task.dtype, at, right);
  }
  EXPECT_EQ(expectation.check_output(out.data(), 1), "");
}

TEST(Expectation, NoticesTheResultOfAnEarlierCall) {
  const Task task{.op = Collective::kAllGather, .bytes = 4096};
  const Bytes out = right_answer(task, inputs(task, 4, 10), 0);
  const Expectation expectation(task, 0, 4);
  EXPECT_EQ(expectation.check_output(out.data(), 10), "");
  EXPECT_NE(expectation.check_output(out.data(), 11), "");
}

TEST(Expectation, NoticesBlocksThatChangedPlaces) {
  const Task task{.op = Collective::kAllToAll, .bytes = 2 * 65536};
  Bytes out = right_answer(task, inputs(task, 2, 1), 0);
  std::rotate(out.begin(), out.begin() + 65536, out.end());
  EXPECT_NE(Expectation(task, 0, 2).check_output(out.data(), 1), "");
  Bytes shifted = right_answer(task, inputs(task, 2, 1), 0);
  std::memmove(shifted.data(), shifted.data() + 4096, 8192);  // inside one block
  EXPECT_NE(Expectation(task, 0, 2).check_output(shifted.data(), 1), "");
}

TEST(Expectation, RefusesSumsThatCannotBeExact) {
  const Task task{.op = Collective::kAllReduce, .dtype = DType::kI8, .bytes = 8};
  EXPECT_THROW(Expectation(task, 0, 128), Error);
}

}  // namespace
}  // namespace lockstep::bench
