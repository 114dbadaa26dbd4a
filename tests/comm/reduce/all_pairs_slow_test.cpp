#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/simd/isa.h"
#include "lockstep/comm/reduce/combine.h"

namespace lockstep {
namespace {

// Every number of a 16-bit type plus every other.
class AllPairs : public testing::TestWithParam<DType> {
 protected:
  void TearDown() override { choose_isa(available_isas().front()); }

  using Numbers = std::vector<std::uint16_t>;
  static constexpr std::size_t kNumbers = 65536;

  static Numbers sums(Isa isa, const Numbers& a, const Numbers& b) {
    Numbers out(kNumbers);
    const std::byte* from[] = {reinterpret_cast<const std::byte*>(a.data()),
                               reinterpret_cast<const std::byte*>(b.data())};
    auto* to = reinterpret_cast<std::byte*>(out.data());
    choose_isa(isa);
    combine(from, {&to, 1}, kNumbers, GetParam(), ReduceOp::kSum);
    return out;
  }
};

TEST_P(AllPairs, HaveTheSameSumsWithEveryInstructionSet) {
  Numbers all(kNumbers);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  for (std::size_t x = 0; x < kNumbers; ++x) {
    const Numbers same(kNumbers, static_cast<std::uint16_t>(x));
    const Numbers expected = sums(Isa::kScalar, same, all);
    for (const Isa isa : available_isas()) {
      ASSERT_TRUE(sums(isa, same, all) == expected) << name(isa) << ", sums with " << x;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, AllPairs, testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& type) { return std::string(name(type.param)); });

}  // namespace
}  // namespace lockstep
