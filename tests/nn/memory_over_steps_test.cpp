#include "lockstep/nn/memory/memory_over_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/nn/tiny_models.h"

namespace lockstep::nn {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

std::vector<std::size_t> sums(const MemoryOverSteps& memory) {
  std::vector<std::size_t> sums(memory.steps.size());
  for (const auto& band : memory.bands) {
    EXPECT_EQ(band.bytes.size(), sums.size()) << band.name;
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += band.bytes[i];
  }
  return sums;
}

const MemoryOverSteps::Band& band_of(const MemoryOverSteps& memory, const std::string& name) {
  const auto found = std::ranges::find(memory.bands, name, &MemoryOverSteps::Band::name);
  EXPECT_NE(found, memory.bands.end()) << name;
  return *found;
}

class OverSteps : public ::testing::Test {
 protected:
  MemoryPlan plan(Tiny tiny, const Tiers& tiers = {}) const {
    return plan_memory(make_tiny(tiny), tiny_setup(tiny), *ops_, OptimizerState::kMoments, {},
                       tiers);
  }
  std::unique_ptr<Ops> ops_ = make_reference_ops();
};

TEST_F(OverSteps, ClassesAddUpToWhatLivesAtEachStep) {
  for (const Tiny tiny : kAllTiny) {
    SCOPED_TRACE(name(tiny));
    const MemoryPlan plan = this->plan(tiny);
    const MemoryOverSteps memory = memory_over_steps(plan);
    ASSERT_EQ(memory.steps.size(), 2 * plan.specs.size() + 1);
    const std::vector<std::size_t> all = sums(memory);
    EXPECT_EQ(*std::ranges::max_element(all), plan.layout.lower_bound);
    for (const int step : memory.steps) {
      std::size_t alive = 0;
      for (const GroupBytes& group : bytes_by_group(plan.requests, step)) alive += group.bytes;
      EXPECT_EQ(all[static_cast<std::size_t>(step)], alive) << step;
    }
  }
}

TEST_F(OverSteps, ActivationsGrowInForwardAndShrinkInBackward) {
  const MemoryOverSteps memory = memory_over_steps(plan(Tiny::kGpt2));
  EXPECT_EQ(memory.bands.front().name, "parameters");
  const std::vector<std::size_t>& bytes = band_of(memory, "activations").bytes;
  const auto blocks = static_cast<std::ptrdiff_t>(memory.blocks);
  EXPECT_TRUE(std::is_sorted(bytes.begin(), bytes.begin() + blocks));
  EXPECT_TRUE(std::is_sorted(bytes.rbegin(), bytes.rbegin() + blocks + 1));
  EXPECT_EQ(bytes.back(), 0u);
  for (const std::size_t one : band_of(memory, "optimizer").bytes) EXPECT_GT(one, 0u);
}

TEST_F(OverSteps, NamesWhatIsOnTheHost) {
  const MemoryOverSteps memory = memory_over_steps(plan(Tiny::kGpt2, {.optimizer = Tier::kHost}));
  std::vector<std::string> names;
  for (const auto& band : memory.bands) names.push_back(band.name);
  EXPECT_THAT(names, Contains("host optimizer"));
}

TEST_F(OverSteps, AColumnOfSeveralStepsIsTheOneWithMost) {
  const MemoryPlan plan = this->plan(Tiny::kGpt2);
  const std::vector<std::size_t> all = sums(memory_over_steps(plan));
  const MemoryOverSteps few = memory_over_steps(plan, 3);
  const std::size_t each = (all.size() + 2) / 3;
  std::vector<std::size_t> most;
  for (std::size_t first = 0; first < all.size(); first += each) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(first + each, all.size()));
    most.push_back(*std::max_element(begin, end));
  }
  EXPECT_EQ(sums(few), most);
  EXPECT_TRUE(std::ranges::is_sorted(few.steps));
}

}  // namespace
}  // namespace lockstep::nn
