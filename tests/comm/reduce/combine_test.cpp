#include "lockstep/comm/reduce/combine.h"
#include "lockstep/base/simd/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <span>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 3, 7, 15, 16, 17, 31, 63, 64, 65, 1000, 4099};
constexpr std::size_t kMostElements = 4099;
constexpr std::size_t kInputCounts[] = {1, 2, 3, 4, 5, 8, 9, 33};
constexpr ReduceOp::Kind kOps[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax,
                                   ReduceOp::kMean};

// The oracle: numbers as double or 128-bit integers, rounding by the definition of the formats.

struct FloatFormat {
  int fraction_bits;
  int least_exponent;  // of a normal number
  int bias;
};

FloatFormat format_of(DType dtype) {
  return dtype == DType::kF16 ? FloatFormat{10, -14, 15} : FloatFormat{7, -126, 127};
}

double decode(std::uint16_t bits, FloatFormat format) {
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int exponent = (bits & 0x7fff) >> format.fraction_bits;
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == 2 * format.bias + 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0)
    return sign * std::ldexp(fraction, format.least_exponent - format.fraction_bits);
  return sign * std::ldexp(fraction + (1 << format.fraction_bits),
                           exponent - format.bias - format.fraction_bits);
}

// The representable number nearest to x; of two, the even one.
double round_to(double x, FloatFormat format) {
  if (!std::isfinite(x) || x == 0) return x;
  const int exponent = std::max(std::ilogb(x), format.least_exponent);
  const double unit = std::ldexp(1.0, exponent - format.fraction_bits);
  const double rounded = std::nearbyint(x / unit) * unit;
  const double limit = std::ldexp(1.0, format.bias + 1);
  return std::abs(rounded) >= limit ? std::copysign(std::numeric_limits<double>::infinity(), x)
                                    : rounded;
}

template <class T>
bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(x);
  return false;
}

template <class T>
bool is_negative(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::signbit(x);
  return x < 0;
}

template <class T>
T wrap(__int128 x) {
  return static_cast<T>(static_cast<unsigned __int128>(x));
}

template <class T>
T oracle_fold(ReduceOp::Kind op, T a, T b) {
  switch (op) {
    case ReduceOp::kMin:
    case ReduceOp::kMax: {
      if (is_nan(a) || is_nan(b)) return is_nan(a) ? a : b;
      const bool a_below = a < b || (a == b && is_negative(a));
      return a_below == (op == ReduceOp::kMin) ? a : b;
    }
    case ReduceOp::kProd:
      if constexpr (std::is_integral_v<T>) return wrap<T>(static_cast<__int128>(a) * b);
      return a * b;
    default:
      if constexpr (std::is_integral_v<T>) return wrap<T>(static_cast<__int128>(a) + b);
      return a + b;
  }
}

template <class T>
T oracle_of(ReduceOp::Kind op, const std::vector<T>& values, int divisor) {
  T result = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) result = oracle_fold(op, result, values[i]);
  if (op == ReduceOp::kMean) result = static_cast<T>(result / static_cast<T>(divisor));
  return result;
}

template <class T>
T load(const std::byte* from) {
  T x;
  std::memcpy(&x, from, sizeof(T));
  return x;
}

// Says whether `got` is the result of `inputs` at element i.
template <class T>
bool is_right(const std::byte* got, const std::vector<std::vector<std::byte>>& inputs,
              std::size_t i, DType dtype, ReduceOp::Kind op, int divisor) {
  if constexpr (std::is_arithmetic_v<T>) {
    std::vector<T> values;
    for (const auto& input : inputs) values.push_back(load<T>(input.data() + i * sizeof(T)));
    T expected = oracle_of(op, values, divisor);
    if (is_nan(expected) && inputs.size() > 1) expected = std::numeric_limits<T>::quiet_NaN();
    return std::memcmp(&expected, got, sizeof(T)) == 0;
  } else {
    const FloatFormat format = format_of(dtype);
    std::vector<float> values;
    for (const auto& input : inputs) {
      values.push_back(static_cast<float>(decode(load<T>(input.data() + 2 * i).bits, format)));
    }
    const double expected = round_to(oracle_of(op, values, divisor), format);
    const std::uint16_t bits = load<T>(got).bits;
    if (std::isnan(expected)) {
      return inputs.size() == 1 ? std::isnan(decode(bits, format))
                                : bits == (dtype == DType::kF16 ? 0x7e00 : 0x7fc0);
    }
    return decode(bits, format) == expected && bool(bits & 0x8000) == std::signbit(expected);
  }
}

// Mostly ordinary numbers, and in every eighth place a peculiar one.
template <class T>
T sample(std::mt19937_64& random) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random());
  } else {
    constexpr bool wide = std::is_same_v<T, double>;
    using Bits =
        std::conditional_t<wide, std::uint64_t,
                           std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
    // Any pattern of bits: NaNs with payloads, infinities and subnormals among them.
    Bits bits = static_cast<Bits>(random());
    constexpr int fraction = std::is_same_v<T, Half>       ? 10
                             : std::is_same_v<T, BFloat16> ? 7
                             : sizeof(T) == 4              ? 23
                                                           : 52;
    constexpr Bits ones = static_cast<Bits>(~Bits{0});
    constexpr Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
    const Bits exponents = static_cast<Bits>(~sign & (ones << fraction));
    switch (random() % 32) {
      case 0:
        return std::bit_cast<T>(bits);
      case 1:
        return std::bit_cast<T>(static_cast<Bits>((bits & sign) | exponents));  // infinity
      case 2:
        return std::bit_cast<T>(static_cast<Bits>(bits & sign));  // zero
      case 3:
        return std::bit_cast<T>(
            static_cast<Bits>(bits & static_cast<Bits>(~exponents)));  // subnormal
      default: {                                                       // around 1, near ties
        const Bits one = static_cast<Bits>((exponents >> 1) & exponents);
        return std::bit_cast<T>(static_cast<Bits>((bits & static_cast<Bits>(~exponents)) | one));
      }
    }
  }
}

struct Guarded {
  explicit Guarded(std::size_t misalignment, std::size_t bytes)
      : memory(kGuard + misalignment + bytes + kGuard, std::byte{0xa5}),
        begin(kGuard + misalignment),
        size(bytes) {}
  std::byte* data() { return memory.data() + begin; }
  bool intact() const {
    const auto is_guard = [](std::byte b) { return b == std::byte{0xa5}; };
    const std::span<const std::byte> all = memory;
    return std::ranges::all_of(all.first(begin), is_guard) &&
           std::ranges::all_of(all.subspan(begin + size), is_guard);
  }
  static constexpr std::size_t kGuard = 64;
  std::vector<std::byte> memory;
  std::size_t begin;
  std::size_t size;
};

class CombineTest : public testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  void SetUp() override { choose_isa(std::get<0>(GetParam())); }
  void TearDown() override { choose_isa(available_isas().front()); }
  DType dtype() const { return std::get<1>(GetParam()); }

  // Combines `count` elements of the inputs into `outputs` places; returns the first output.
  std::vector<std::byte> run(const std::vector<std::vector<std::byte>>& inputs, std::size_t outputs,
                             std::size_t count, ReduceOp::Kind op, bool in_place) {
    const std::size_t bytes = count * size_of(dtype());
    std::vector<Guarded> in;
    std::vector<Guarded> out;
    for (std::size_t n = 0; n < inputs.size(); ++n) {
      in.emplace_back((n * 5 + 3) % 17, bytes);
      std::memcpy(in.back().data(), inputs[n].data(), bytes);
    }
    for (std::size_t m = 0; m < outputs; ++m) out.emplace_back((m * 7 + 1) % 19, bytes);
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (Guarded& g : in) from.push_back(g.data());
    for (std::size_t m = 0; m < outputs; ++m) {
      to.push_back(in_place ? in[inputs.size() - 1 - m].data() : out[m].data());
    }
    combine(from, to, count, dtype(), op, static_cast<int>(inputs.size()));
    for (std::size_t m = 1; m < outputs; ++m) {
      EXPECT_EQ(std::memcmp(to[0], to[m], bytes), 0) << "output " << m;
    }
    for (const Guarded& g : in) EXPECT_TRUE(g.intact());
    for (const Guarded& g : out) EXPECT_TRUE(g.intact());
    return {to[0], to[0] + bytes};
  }
};

TEST_P(CombineTest, MatchesTheOracleForEveryShape) {
  std::mt19937_64 random(7);
  with_type(dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t input_count : kInputCounts) {
      std::vector<std::vector<std::byte>> inputs(input_count);
      for (auto& input : inputs) {
        input.resize(kMostElements * sizeof(T));
        for (std::size_t i = 0; i < kMostElements; ++i) {
          const T x = sample<T>(random);
          std::memcpy(input.data() + i * sizeof(T), &x, sizeof(T));
        }
      }
      for (ReduceOp::Kind op : kOps) {
        SCOPED_TRACE(fmt::format("{} of {} inputs", name(ReduceOp(op)), input_count));
        const auto whole = run(inputs, 1, kMostElements, op, false);
        for (std::size_t i = 0; i < kMostElements; ++i) {
          ASSERT_TRUE(is_right<T>(whole.data() + i * sizeof(T), inputs, i, dtype(), op,
                                  static_cast<int>(input_count)))
              << "element " << i;
        }
        for (std::size_t count : kCounts) {
          for (std::size_t outputs : {std::size_t{1}, std::size_t{2}, input_count}) {
            for (bool in_place : {false, true}) {
              if (in_place && outputs > input_count) continue;
              const auto result = run(inputs, outputs, count, op, in_place);
              ASSERT_TRUE(std::equal(result.begin(), result.end(), whole.begin()))
                  << count << " elements to " << outputs << (in_place ? ", in place" : "");
            }
          }
        }
      }
    }
  });
}

std::string test_name(const testing::TestParamInfo<CombineTest::ParamType>& info) {
  return fmt::format("{}_{}", name(std::get<0>(info.param)), name(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(All, CombineTest,
                         testing::Combine(testing::ValuesIn(available_isas()),
                                          testing::ValuesIn(kAllDTypes)),
                         test_name);

template <class T>
std::vector<T> combined(std::vector<std::vector<T>> inputs, ReduceOp op, int divisor = 1) {
  std::vector<const std::byte*> from;
  for (const auto& input : inputs) from.push_back(reinterpret_cast<const std::byte*>(input.data()));
  std::vector<T> result(inputs[0].size());
  std::byte* to = reinterpret_cast<std::byte*>(result.data());
  combine(from, {&to, 1}, result.size(), dtype_of<T>, op, divisor);
  return result;
}

void on_all_isas(const std::function<void()>& claim) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name(isa));
    choose_isa(isa);
    claim();
  }
  choose_isa(available_isas().front());
}

TEST(Combine, SixteenBitFloatsAreRoundedOnceForManyInputs) {
  // 256 + 1 + ... + 1: every addition in bf16 would round back to 256.
  on_all_isas([] {
    std::vector<std::vector<BFloat16>> inputs(9, std::vector<BFloat16>(100, to_bfloat16(1.0f)));
    inputs[0].assign(100, to_bfloat16(256.0f));
    for (BFloat16 x : combined(inputs, ReduceOp::kSum)) EXPECT_EQ(to_float(x), 264.0f);
  });
}

TEST(Combine, HalfwayBetweenTwoBf16TheEvenOneIsTaken) {
  // Every number of either sign that is large enough to have halves, plus half its unit, plus or
  // minus a little.
  std::vector<std::vector<BFloat16>> inputs(3);
  std::vector<BFloat16> expected;
  for (unsigned bits = 0x1000; bits < 0x7f00; ++bits) {
    for (const unsigned sign : {0u, 0x8000u}) {
      const unsigned half = (bits & 0x7f80u) - (8u << 7);
      const unsigned little = half - (4u << 7);
      for (const unsigned last : {sign, sign | little, (sign ^ 0x8000u) | little}) {
        const BFloat16 terms[] = {{static_cast<std::uint16_t>(sign | bits)},
                                  {static_cast<std::uint16_t>(sign | half)},
                                  {static_cast<std::uint16_t>(last)}};
        for (std::size_t i = 0; i < 3; ++i) inputs[i].push_back(terms[i]);
        const bool up = last == (sign | little) || (last == sign && bits % 2 == 1);
        expected.push_back({static_cast<std::uint16_t>((sign | bits) + (up ? 1 : 0))});
      }
    }
  }
  on_all_isas([&] { EXPECT_TRUE(combined(inputs, ReduceOp::kSum) == expected); });
}

TEST(Combine, SumsBeyondTheRangeOfF16AreInfiniteUnlessTheMeanFits) {
  on_all_isas([] {
    const std::vector<std::vector<Half>> inputs(2, std::vector<Half>(33, to_half(60000.0f)));
    for (Half x : combined(inputs, ReduceOp::kSum)) EXPECT_EQ(x.bits, 0x7c00);
    for (Half x : combined(inputs, ReduceOp::kMean, 2)) EXPECT_EQ(x, to_half(60000.0f));
  });
}

TEST(Combine, MeanOfIntegersWrapsThenDividesTowardsZero) {
  on_all_isas([] {
    using Bytes = std::vector<std::vector<std::int8_t>>;
    EXPECT_EQ(combined(Bytes{{-7, 7, 100}, {0, 0, 100}}, ReduceOp::kMean, 2),
              (std::vector<std::int8_t>{-3, 3, -28}));
    EXPECT_EQ(combined(Bytes{{-128, 127}, {0, 0}}, ReduceOp::kMean, 128),
              (std::vector<std::int8_t>{-1, 0}));
  });
}

TEST(Combine, MeanWithDivisorOneIsASum) {
  EXPECT_EQ(combined<float>({{1, 2}, {3, 4}}, ReduceOp::kMean, 1), (std::vector<float>{4, 6}));
}

TEST(Combine, MinusZeroLiesBelowZero) {
  on_all_isas([] {
    using Floats = std::vector<std::vector<float>>;
    for (float x : combined(Floats{{0.0f, -0.0f}, {-0.0f, 0.0f}}, ReduceOp::kMin)) {
      EXPECT_TRUE(std::signbit(x));
    }
    for (float x : combined(Floats{{0.0f, -0.0f}, {-0.0f, 0.0f}}, ReduceOp::kMax)) {
      EXPECT_FALSE(std::signbit(x));
    }
  });
}

TEST(Combine, UserOperationsAreAppliedFromLeftToRight) {
  struct Log {
    std::size_t elements = 0;
  } log;
  UserReduction minus;
  minus.name = "minus";
  minus.context = &log;
  minus.combine = [](void* accumulator, const void* operand, std::size_t count, DType dtype,
                     void* context) {
    EXPECT_EQ(dtype, DType::kI32);
    static_cast<Log*>(context)->elements += count;
    for (std::size_t i = 0; i < count; ++i) {
      static_cast<std::int32_t*>(accumulator)[i] -= static_cast<const std::int32_t*>(operand)[i];
    }
  };
  constexpr std::size_t kCount = 5000;
  const std::vector<std::vector<std::int32_t>> inputs = {std::vector<std::int32_t>(kCount, 100),
                                                         std::vector<std::int32_t>(kCount, 30),
                                                         std::vector<std::int32_t>(kCount, 7)};
  EXPECT_EQ(combined(inputs, ReduceOp(minus)), std::vector<std::int32_t>(kCount, 63));
  EXPECT_EQ(log.elements, 2 * kCount);
}

TEST(Combine, LargeResultsApartFromTheInputsAreRight) {
  on_all_isas([] {
    constexpr std::size_t kCount = 1'000'003;
    for (std::size_t shift : {0, 1, 5}) {
      std::vector<float> a(kCount, 1.5f);
      std::vector<float> b(kCount, 2.25f);
      std::vector<float> out(kCount + 2 * shift, 0.0f);
      const std::byte* from[] = {reinterpret_cast<const std::byte*>(a.data()),
                                 reinterpret_cast<const std::byte*>(b.data())};
      std::byte* to = reinterpret_cast<std::byte*>(out.data() + shift);
      combine(from, {&to, 1}, kCount, DType::kF32, ReduceOp::kSum);
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i], i >= shift && i < shift + kCount ? 3.75f : 0.0f) << i;
      }
    }
  });
}

TEST(Combine, DividesInPlace) {
  std::vector<Half> values(21, to_half(9.0f));
  divide(reinterpret_cast<std::byte*>(values.data()), values.size(), DType::kF16, 3);
  EXPECT_EQ(values, std::vector<Half>(21, to_half(3.0f)));
}

TEST(Combine, LeavesTheFloatingPointEnvironmentAsItWas) {
  const float nan = std::bit_cast<float>(0x7fc12345u);
  combined<float>(std::vector<std::vector<float>>(2, std::vector<float>(1000, 1.0f)), {});
  volatile float sum = nan;
  sum = sum + 1.0f;
  EXPECT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(sum)), 0x7fc12345u);
}

TEST(Combine, RefusesNoInputsAndDivisorsBelowOne) {
  std::byte byte{};
  std::byte* to = &byte;
  const std::byte* from = &byte;
  EXPECT_THROW(combine({}, {&to, 1}, 1, DType::kU8, ReduceOp::kSum), Error);
  EXPECT_THROW(combine({&from, 1}, {&to, 1}, 1, DType::kU8, ReduceOp::kMean, 0), Error);
}

}  // namespace
}  // namespace lockstep
