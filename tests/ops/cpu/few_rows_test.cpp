// Products of a few rows: every instruction set of this CPU, every type, odd shapes.
#include "lockstep/ops/cpu/gemm/few_rows/few_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/ops/element.h"

namespace lockstep::cpu::gemm::few_rows_test {
namespace {

constexpr DType kEveryType[] = {DType::kF32, DType::kBF16, DType::kF16};

using Bytes = std::vector<std::byte>;

template <class ValueAt>
Bytes filled(DType dtype, std::size_t count, ValueAt value_at) {
  Bytes bytes(count * size_of(dtype));
  ops::with_float_type(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      const T element = ops::rounded<T>(value_at(i));
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
  });
  return bytes;
}

// Integers so small that all sums are exact: there is one right result.
double integer_at(std::size_t i, unsigned seed) {
  return static_cast<double>(random_word(seed, 0, i) % 5) - 2;
}

ProductShape shape_of(DType dtype, std::size_t m, std::size_t n, std::size_t k) {
  return {.m = m,
          .n = n,
          .k = k,
          .dtype = dtype,
          .output = dtype,
          .b_transposed = true,
          .bias = true,
          .added = true};
}

Bytes product(const Cpu& cpu, const ProductShape& shape, const Bytes& a, const Bytes& b,
              const Bytes& bias, const Bytes& added) {
  const auto few_rows = make_few_rows(cpu);
  EXPECT_TRUE(few_rows->accepts(shape));
  // As small as promised, for the address sanitizer to see what lies behind.
  Bytes scratch(few_rows->scratch(shape));
  Bytes output(shape.m * shape.n * size_of(shape.dtype));
  few_rows->run({.shape = shape,
                 .a = a.data(),
                 .b = b.data(),
                 .output = output.data(),
                 .finish = {.bias = bias.data(), .added = added.data()}},
                scratch.data());
  return output;
}

TEST(FewRows, MultiplyOddShapesExactly) {
  for (const Isa isa : available_isas()) {
    for (const int threads : {1, 2, 3}) {
      ThreadTeam team(threads);
      for (const DType dtype : kEveryType) {
        for (const std::size_t m : {1, 2, 3, 5, 8}) {
          for (const std::size_t n : {1, 13, 131}) {
            for (const std::size_t k : {0, 1, 7, 64, 129}) {
              const auto a = [](std::size_t i) { return integer_at(i, 1); };
              const auto b = [](std::size_t i) { return integer_at(i, 2); };
              const auto bias = [](std::size_t i) { return integer_at(i, 3); };
              const auto added = [](std::size_t i) { return integer_at(i, 4); };
              const auto right = [&](std::size_t at) {
                double sum = bias(at % n) + added(at);
                for (std::size_t p = 0; p < k; ++p) sum += a(at / n * k + p) * b(at % n * k + p);
                return sum;
              };
              ASSERT_EQ(product({team, isa}, shape_of(dtype, m, n, k), filled(dtype, m * k, a),
                                filled(dtype, n * k, b), filled(dtype, n, bias),
                                filled(dtype, m * n, added)),
                        filled(dtype, m * n, right))
                  << name(isa) << ", " << threads << " threads, " << name(dtype) << ": " << m
                  << " x " << n << " x " << k;
            }
          }
        }
      }
    }
  }
}

// A token's result is the same to the bit, whatever else is computed with it and by however many.
TEST(FewRows, ARowHasTheSameBitsInAnyCompanyAndOnAnyNumberOfThreads) {
  constexpr std::size_t kRows = 8, kOut = 2 * 131, kIn = 517;
  const auto normal = [](std::uint64_t seed) {
    return [seed](std::size_t i) { return static_cast<double>(normal_at(seed, 0, i)); };
  };
  for (const Isa isa : available_isas()) {
    for (const DType dtype : kEveryType) {
      const Bytes a = filled(dtype, kRows * kIn, normal(1));
      const Bytes b = filled(dtype, kOut * kIn, normal(2));
      const Bytes bias = filled(dtype, kOut, normal(3));
      const Bytes added = filled(dtype, kRows * kOut, normal(4));
      ThreadTeam one(1);
      const Bytes all = product({one, isa}, shape_of(dtype, kRows, kOut, kIn), a, b, bias, added);
      for (const std::size_t rows : {1, 3, 8}) {
        ThreadTeam three(3);
        const Bytes some =
            product({three, isa}, shape_of(dtype, rows, kOut, kIn), a, b, bias, added);
        EXPECT_EQ(std::memcmp(some.data(), all.data(), some.size()), 0)
            << name(isa) << ", " << name(dtype) << ", " << rows << " rows";
      }
    }
  }
}

TEST(FewRows, LeavesManyRowsAndOtherLayoutsToOthers) {
  ThreadTeam team(1);
  const auto few_rows = make_few_rows({team, chosen_isa()});
  EXPECT_FALSE(few_rows->accepts(shape_of(DType::kF32, 0, 5, 5)));
  EXPECT_FALSE(few_rows->accepts(shape_of(DType::kF32, kFewRows + 1, 5, 5)));
  ProductShape gradient = shape_of(DType::kF32, 1, 5, 5);
  gradient.b_transposed = false;
  EXPECT_FALSE(few_rows->accepts(gradient));
}

}  // namespace
}  // namespace lockstep::cpu::gemm::few_rows_test
