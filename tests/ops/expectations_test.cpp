// That the expectations of operations fail where an implementation does: one that is a little off,
// writes beside its output or into its input, leaves something out, changes its mind, or writes
// before it refuses.
#include "tests/ops/expectations.h"

#include <gtest/gtest-spi.h>

#include "lockstep/bench/ops/fields.h"

namespace lockstep::ops_test {
namespace {

using bench::input;
using bench::output;
using Fault = void (*)(const Tensors& t, int call);

Fault fault = nullptr;  // what happens after the right result was written
int calls = 0;          // the first is that of the reference

std::vector<OpCase> cases(DType dtype) {
  OpCase one;
  one.name = "faulty";
  one.fields = {input("a", dtype, {4}, bench::normal(1, 3)),
                input("b", dtype, {4}, bench::normal(1, 3)), output("y", dtype, {4}, {})};
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::Add{.a = t["a"], .b = t["b"], .y = t["y"]});
    if (fault != nullptr && calls++ > 0) fault(t, calls);
  };
  if (dtype != DType::kF32) return {};
  return {one};
}

void run_with(Fault with) {
  fault = with;
  calls = 0;
  static const std::unique_ptr<Ops> kReference[] = {make_reference_ops()};
  expect_values(kReference, {"add", cases, nullptr});
}

float& last(const Tensor& tensor) { return tensor.as<float>().back(); }

TEST(Expectations, HoldForWhatIsRight) { run_with(nullptr); }

TEST(Expectations, FailForTwoLastPlaces) {
  const Fault off = [](const Tensors& t, int) { last(t["y"]) *= 1 + 0x1p-21f; };
  EXPECT_NONFATAL_FAILURE(run_with(off), "the reference has");
}

TEST(Expectations, FailForAnElementThatIsLeftOut) {
  const Fault left_out = [](const Tensors& t, int) { last(t["y"]) = NAN; };
  EXPECT_NONFATAL_FAILURE(run_with(left_out), "y[3] is nan");
}

TEST(Expectations, FailForAnElementTooMany) {
  const Fault beyond = [](const Tensors& t, int) { (&last(t["y"]))[1] = 0; };
  EXPECT_NONFATAL_FAILURE(run_with(beyond), "something was written beside y");
  const Fault before = [](const Tensors& t, int) { t["y"].as<float>().data()[-1] = 0; };
  EXPECT_NONFATAL_FAILURE(run_with(before), "something was written beside y");
}

TEST(Expectations, FailForAnInputThatIsWritten) {
  const Fault into_input = [](const Tensors& t, int) { last(t["a"]) += 1; };
  EXPECT_NONFATAL_FAILURE(run_with(into_input), "a was written to, and is only read");
}

TEST(Expectations, FailForAnotherResultTheNextTime) {
  const Fault changes = [](const Tensors& t, int call) {
    if (call == 3) last(t["y"]) = std::nextafter(last(t["y"]), 0.f);
  };
  EXPECT_NONFATAL_FAILURE(run_with(changes), "y is not the same in a second run");
}

TEST(Expectations, FailForAnOperationThatIsNotThere) {
  const Fault throws = [](const Tensors&, int) {
    fail(ErrorCode::kUnsupported, "add: not here yet");
  };
  EXPECT_NONFATAL_FAILURE(run_with(throws), "add: not here yet");
}

// An operation that takes everything.
std::vector<OpCase> careless_cases(DType dtype) {
  OpCase one;
  one.fields = {input("a", dtype, {4}, bench::normal())};
  one.run = [](Ops&, const Tensors&) {};
  return {one};
}

TEST(Expectations, FailForWhatIsNotRefused) {
  const auto run = [] {
    const auto reference = make_reference_ops();
    expect_refusals(*reference, {"careless", careless_cases, nullptr});
  };
  ::testing::TestPartResultArray failures;
  {
    ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    run();
  }
  EXPECT_EQ(failures.size(), 4);  // type, device, extent, dimension
}

}  // namespace
}  // namespace lockstep::ops_test
