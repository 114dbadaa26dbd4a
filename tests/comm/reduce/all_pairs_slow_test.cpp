#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/reduce/combine.h"

namespace lockstep {
namespace {

// Every number of a 16-bit type plus every other.
class AllPairs : public testing::TestWithParam<DType> {
 protected:
  void TearDown() override { use_kernel_set(available_kernel_sets().front()); }

  using Numbers = std::vector<std::uint16_t>;
  static constexpr std::size_t kNumbers = 65536;

  static Numbers sums(std::string_view set, const Numbers& a, const Numbers& b) {
    Numbers out(kNumbers);
    const std::byte* from[] = {reinterpret_cast<const std::byte*>(a.data()),
                               reinterpret_cast<const std::byte*>(b.data())};
    auto* to = reinterpret_cast<std::byte*>(out.data());
    use_kernel_set(set);
    combine(from, {&to, 1}, kNumbers, GetParam(), ReduceOp::kSum);
    return out;
  }
};

TEST_P(AllPairs, HaveTheSameSumsWithEveryKernelSet) {
  Numbers all(kNumbers);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  for (std::size_t x = 0; x < kNumbers; ++x) {
    const Numbers same(kNumbers, static_cast<std::uint16_t>(x));
    const Numbers expected = sums("scalar", same, all);
    for (const std::string_view set : available_kernel_sets()) {
      ASSERT_TRUE(sums(set, same, all) == expected) << set << ", sums with " << x;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, AllPairs, testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& type) { return std::string(name(type.param)); });

}  // namespace
}  // namespace lockstep
