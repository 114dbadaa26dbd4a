// Every operation of a communicator, checked on small inputs by each of its ranks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::testing {

using Floats = std::vector<float>;

template <class T>
T number(double x) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(static_cast<float>(x));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

inline constexpr std::size_t kCount = 11;

// What rank r gives in element i: small enough to be exact in every type.
inline double given(int rank, std::size_t i) { return (rank + 1) * (i % 3 == 0 ? 2 : 1); }

inline double reduced(ReduceOp::Kind op, int ranks, std::size_t i) {
  double result = given(0, i);
  for (int r = 1; r < ranks; ++r) {
    const double x = given(r, i);
    switch (op) {
      case ReduceOp::kProd:
        result *= x;
        break;
      case ReduceOp::kMin:
        result = std::min(result, x);
        break;
      case ReduceOp::kMax:
        result = std::max(result, x);
        break;
      default:
        result += x;
    }
  }
  return op == ReduceOp::kMean ? result / ranks : result;
}

template <class T>
void check_reductions(Communicator& comm) {
  for (ReduceOp::Kind op :
       {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kMean}) {
    const auto expected = [&](std::size_t i) {
      const double exact = reduced(op, comm.size(), i);
      if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<int>(exact));
      return number<T>(exact);
    };
    std::vector<T> mine;
    for (std::size_t i = 0; i < kCount; ++i) mine.push_back(number<T>(given(comm.rank(), i)));
    std::vector<T> out(kCount);
    comm.all_reduce(mine, out, op);
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(out[i], expected(i)) << i;
    comm.all_reduce(mine, op);
    EXPECT_EQ(mine, out);
  }
}

inline void check_rooted(Communicator& comm) {
  const int n = comm.size();
  for (int root = 0; root < n; ++root) {
    const bool is_root = comm.rank() == root;
    Floats data(5, is_root ? 7.0f : 0.0f);
    comm.broadcast(data, root);
    EXPECT_EQ(data, Floats(5, 7.0f));

    Floats whole(is_root ? 2 * n : 0);
    std::iota(whole.begin(), whole.end(), 0.0f);
    Floats part(2);
    comm.scatter(whole, part, root);
    EXPECT_EQ(part, (Floats{2.0f * comm.rank(), 2.0f * comm.rank() + 1}));
    Floats back(whole.size());
    comm.gather(part, back, root);
    EXPECT_EQ(back, whole);
    if (is_root) {  // in place
      comm.scatter(whole, std::span(whole).subspan(2 * root, 2), root);
      comm.gather(std::span(back).subspan(2 * root, 2), back, root);
    } else {
      comm.scatter({}, part, root);
      comm.gather(part, {}, root);
    }
    EXPECT_EQ(back, whole);

    Floats sum(3, 1.0f);
    comm.reduce(sum, is_root ? Data(sum) : Data(), ReduceOp::kSum, root);
    if (is_root) {
      EXPECT_EQ(sum, Floats(3, static_cast<float>(n)));
    }
  }
}

inline void check_blocks(Communicator& comm) {
  const int n = comm.size();
  const auto rank = static_cast<float>(comm.rank());
  Floats all(n);
  comm.all_gather(Floats{rank}, all);
  Floats in_place(n, -1.0f);
  in_place[comm.rank()] = rank;
  comm.all_gather(std::span(in_place).subspan(comm.rank(), 1), in_place);
  EXPECT_EQ(in_place, all);
  for (int r = 0; r < n; ++r) EXPECT_EQ(all[r], r);

  Floats parts(2 * n);
  std::iota(parts.begin(), parts.end(), 0.0f);
  Floats mine(2);
  comm.reduce_scatter(parts, mine);
  EXPECT_EQ(mine, (Floats{2 * rank * n, (2 * rank + 1) * n}));
  comm.reduce_scatter(parts, std::span(parts).subspan(2 * comm.rank(), 2), ReduceOp::kMean);
  for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i], i);

  Floats to(n);
  for (int r = 0; r < n; ++r) to[r] = 10 * rank + r;
  Floats from(n);
  comm.all_to_all(to, from);
  for (int r = 0; r < n; ++r) EXPECT_EQ(from[r], 10 * r + rank);
  comm.all_to_all(to, to);
  EXPECT_EQ(to, from);
}

inline void check_varying(Communicator& comm) {
  const int n = comm.size();
  std::vector<std::size_t> counts(n);  // 0, 1, 2, ...
  std::iota(counts.begin(), counts.end(), std::size_t{0});
  Floats expected;
  for (int r = 0; r < n; ++r) expected.insert(expected.end(), r, static_cast<float>(r));
  const Floats mine(comm.rank(), static_cast<float>(comm.rank()));
  Floats all(expected.size());
  comm.run(all_gather_v(mine, all, counts));
  EXPECT_EQ(all, expected);
  const bool is_root = comm.rank() == n - 1;
  Floats gathered(is_root ? expected.size() : 0);
  comm.run(gather_v(mine, gathered, counts, n - 1));
  if (is_root) {
    EXPECT_EQ(gathered, expected);
  }
  Floats part(mine.size());
  comm.run(scatter_v(gathered, counts, part, n - 1));
  EXPECT_EQ(part, mine);

  // Rank i sends i + j elements to rank j.
  std::vector<std::size_t> sizes(n);
  std::iota(sizes.begin(), sizes.end(), static_cast<std::size_t>(comm.rank()));
  Floats to;
  Floats wanted;
  for (int r = 0; r < n; ++r) {
    to.insert(to.end(), sizes[r], static_cast<float>(100 * comm.rank() + r));
    wanted.insert(wanted.end(), sizes[r], static_cast<float>(100 * r + comm.rank()));
  }
  Floats from(wanted.size());
  comm.run(all_to_all_v(to, sizes, from, sizes));
  EXPECT_EQ(from, wanted);
  comm.run(all_to_all_v(to, sizes, to, sizes));
  EXPECT_EQ(to, wanted);
}

inline void check_points(Communicator& comm) {
  const int n = comm.size();
  const int next = (comm.rank() + 1) % n;
  const int previous = (comm.rank() + n - 1) % n;
  Floats copied(2);
  comm.copy(Floats{1, 2}, copied);
  EXPECT_EQ(copied, (Floats{1, 2}));
  if (n == 1) return;
  const std::vector<std::int64_t> a{comm.rank()};
  const std::vector<std::uint8_t> b(9, static_cast<std::uint8_t>(comm.rank()));
  std::vector<std::int64_t> got_a(1);
  std::vector<std::uint8_t> got_b(9);
  const Work works[] = {comm.start(send(a, next)), comm.start(send(b, next)),
                        comm.start(receive(got_a, previous)), comm.start(receive(got_b, previous))};
  for (const Work& work : works) work.wait();
  EXPECT_EQ(got_a[0], previous);
  EXPECT_EQ(got_b, std::vector<std::uint8_t>(9, static_cast<std::uint8_t>(previous)));
  comm.signal(next);
  comm.signal(next);
  comm.wait_signal(previous);
  comm.wait_signal(previous);
}

inline void check_several_in_flight(Communicator& comm) {
  UserReduction larger;
  larger.name = "larger of two";
  larger.combine = [](void* accumulator, const void* operand, std::size_t count, DType, void*) {
    for (std::size_t i = 0; i < count; ++i) {
      auto& a = static_cast<std::int32_t*>(accumulator)[i];
      a = std::max(a, static_cast<const std::int32_t*>(operand)[i]);
    }
  };
  std::vector<std::int32_t> user(1000, comm.rank());
  std::vector<Half> halves(77, to_half(1.0f));
  Floats sums(3000, 1.0f);
  const Work works[] = {comm.start(all_reduce(user, ReduceOp(larger))),
                        comm.start(all_reduce(halves, ReduceOp::kMax)),
                        comm.start(all_reduce(sums)), comm.start(barrier())};
  for (int w = 3; w >= 0; --w) works[w].wait();
  EXPECT_TRUE(works[0].done());
  EXPECT_EQ(user, std::vector<std::int32_t>(1000, comm.size() - 1));
  EXPECT_EQ(halves, std::vector<Half>(77, to_half(1.0f)));
  EXPECT_EQ(sums, Floats(3000, static_cast<float>(comm.size())));
}

// Called by all ranks of `comm`.
inline void check_every_operation(Communicator& comm) {
  for (DType dtype : kAllDTypes) {
    SCOPED_TRACE(name(dtype));
    with_type(dtype, [&](auto zero) { check_reductions<decltype(zero)>(comm); });
  }
  check_rooted(comm);
  check_blocks(comm);
  check_varying(comm);
  check_points(comm);
  check_several_in_flight(comm);
  comm.all_reduce(Floats{});
  comm.barrier();
}

}  // namespace lockstep::testing
