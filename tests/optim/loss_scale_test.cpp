#include "lockstep/optim/loss_scale.h"

#include <gtest/gtest.h>

namespace lockstep::optim {
namespace {

TEST(LossScale, IsExhaustedByTheOverflowThatTakesItBelowTheLeast) {
  const LossScaleOptions options{.initial = 4, .min = 2};
  LossScale state{.scale = options.initial};
  EXPECT_FALSE(is_exhausted(state, options));
  state = after_overflow(state);
  EXPECT_EQ(state.scale, 2);
  EXPECT_FALSE(is_exhausted(state, options)) << "the least may still be tried";
  state = after_overflow(state);
  EXPECT_TRUE(is_exhausted(state, options));
}

}  // namespace
}  // namespace lockstep::optim
