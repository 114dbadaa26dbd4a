// What a call throws, for a test to look at.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::testing {

template <class F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::kAborted, "nothing was thrown"};
}

// The message of an error about what was asked for.
template <class F>
std::string refusal_of(F&& f) {
  const Error error = error_of(f);
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
  return error.what();
}

}  // namespace lockstep::testing
