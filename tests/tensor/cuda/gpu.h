// For tests that need a GPU: where there is none they are skipped, and say so.
//
//   class Memory : public OnGpu<::testing::Test> {};
//
// With LOCKSTEP_TEST_NEEDS_GPU=1 in the environment they fail instead.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "lockstep/tensor/cuda.h"

namespace lockstep::testing {

inline constexpr Device kGpu{DeviceKind::kCuda, 0};

template <class Fixture>
class OnGpu : public Fixture {
 protected:
  void SetUp() override {
    const std::string why = why_no_cuda();
    if (why.empty()) return Fixture::SetUp();
    const char* const needed = std::getenv("LOCKSTEP_TEST_NEEDS_GPU");
    if (needed != nullptr && std::string(needed) == "1") FAIL() << "no GPU: " << why;
    GTEST_SKIP() << "SKIPPED: no GPU: " << why;
  }
};

}  // namespace lockstep::testing
