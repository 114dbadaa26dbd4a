// What the descriptions of operations (bench/ops/description.h) let one expect of an
// implementation.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/ops/element.h"
#include "tests/ops/case_memory.h"

namespace lockstep::ops_test {

using bench::Freedom;
using bench::OpDescription;

inline constexpr DType kComputeTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// Bytes, which are numbers of 8 bits, as their codes: neighbours are one apart.
inline std::vector<double> as_doubles(const Tensor& tensor) {
  if (tensor.dtype() == DType::kU8) {
    const auto bytes = tensor.as<const std::uint8_t>();
    return {bytes.begin(), bytes.end()};
  }
  if (tensor.dtype() == DType::kI32) {
    const auto numbers = tensor.as<const std::int32_t>();
    return {numbers.begin(), numbers.end()};
  }
  return ops::with_float_type(tensor.dtype(), [&]<class T>(T) {
    std::vector<double> values;
    for (const T& element : tensor.as<const T>()) values.push_back(ops::to_double(element));
    return values;
  });
}

// The first element that is too far from the reference's, in words; empty where none is. An oracle
// that is itself so near to the reference doubles what is allowed.
inline std::string difference(const OpField& field, const Tensor& is, const Tensor& expected,
                              double times_allowed = 1) {
  const std::vector<double> ours = as_doubles(is);
  const std::vector<double> theirs = as_doubles(expected);
  const std::size_t size = size_of(field.dtype);
  std::string first;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const bool same_bits = std::memcmp(is.data() + i * size, expected.data() + i * size, size) == 0;
    const double allowed = field.tolerance.allowed(field.dtype, theirs[i]) * times_allowed;
    if (same_bits || ours[i] == theirs[i] || std::fabs(ours[i] - theirs[i]) <= allowed) continue;
    if (++wrong > 1) continue;
    first = fmt::format("{}[{}] is {:.9g}, the reference has {:.9g}, {:.3g} is allowed", field.name,
                        i, ours[i], theirs[i], allowed);
  }
  return wrong < 2 ? first : fmt::format("{} ({} of {} are wrong)", first, wrong, ours.size());
}

// What a run did to inputs and canaries, which it leaves alone.
inline std::vector<std::string> touched(const OpCase& one, CaseMemory& memory) {
  std::vector<std::string> problems;
  for (const OpField& field : one.fields) {
    FieldMemory& of_field = memory.field(field.name);
    if (!of_field.canaries_are_intact()) {
      problems.push_back("something was written beside " + field.name);
    }
    if (field.role == Role::kInput && of_field.content() != memory.saved(field.name)) {
      problems.push_back(field.name + " was written to, and is only read");
    }
  }
  if (!memory.scratch_is_intact()) problems.push_back("something was written beyond the scratch");
  return problems;
}

// All that is wrong with two runs of a case, a line each.
inline std::vector<std::string> problems_of(Ops& ops, const OpCase& one, CaseMemory& memory,
                                            CaseMemory& expected, double times_allowed = 1) {
  memory.restore();
  memory.run(ops);
  std::vector<std::string> problems = touched(one, memory);
  std::map<std::string, std::vector<std::byte>> first;
  for (const OpField& field : one.fields) {
    if (field.role == Role::kInput) continue;
    FieldMemory& of_field = memory.field(field.name);
    const std::string off =
        difference(field, of_field.tensor(), expected.field(field.name).tensor(), times_allowed);
    if (!off.empty()) problems.push_back(off);
    first[field.name] = of_field.content();
  }
  memory.restore();
  memory.run(ops);
  for (const auto& [field, content] : first) {
    if (memory.field(field).content() == content) continue;
    problems.push_back(field + " is not the same in a second run");
  }
  return problems;
}

inline void expect_case(Ops& ops, const OpCase& one, CaseMemory& memory, CaseMemory& expected) {
  try {
    for (const std::string& problem : problems_of(ops, one, memory, expected)) {
      ADD_FAILURE() << problem;
    }
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

// That each implementation gives what the reference gives, in every case of a description, on every
// type, the same bits every time, and writes nothing else. An operation that is not there fails.
inline void expect_values(std::span<const std::unique_ptr<Ops>> implementations,
                          const OpDescription& description) {
  const auto reference = make_reference_ops();
  for (const DType dtype : kComputeTypes) {
    for (const OpCase& one : description.cases(dtype)) {
      CaseMemory expected(one), memory(one);
      expected.run(*reference);
      for (const auto& ops : implementations) {
        SCOPED_TRACE(fmt::format("{} of {}: {}, by {}", description.name, name(dtype), one.name,
                                 ops->name()));
        expect_case(*ops, one, memory, expected);
      }
    }
  }
}

// That LinearActivation gives the bits of Linear followed by Activate, as its contract says.
inline void expect_fused_bits(Ops& ops, const OpCase& one, ops::Activation activation) {
  CaseMemory fused(one, 1, {ops.device()}), apart(one, 1, {ops.device()});
  fused.run(ops);
  apart.run(ops, [activation](Ops& by, const Tensors& t) {
    const Tensor z = ops::is_given(t["z"]) ? t["z"] : t["y"];
    by.run(ops::Linear{.x = t["x"], .weight = t["weight"], .bias = t["bias"], .y = z});
    by.run(ops::Activate{
        .activation = activation, .z = z, .y = t["y"], .derivative = t["derivative"]});
  });
  for (const OpField& field : one.fields) {
    EXPECT_TRUE(fused.field(field.name).content() == apart.field(field.name).content())
        << field.name << " differs: " << one.name << ", by " << ops.name();
  }
}

inline void expect_fused_bits(Ops& ops) {
  const auto& all = bench::op_descriptions();
  const auto found = std::find_if(all.begin(), all.end(), [](const OpDescription& description) {
    return description.name == "linear_activation";
  });
  for (const DType dtype : kComputeTypes) {
    for (const OpCase& one : found->cases(dtype)) {
      for (const auto& [word, activation] : {std::pair{"gelu tanh", ops::Activation::kGeluTanh},
                                             std::pair{"gelu erf", ops::Activation::kGeluErf},
                                             std::pair{"relu", ops::Activation::kRelu}}) {
        if (one.name.find(word) != std::string::npos) expect_fused_bits(ops, one, activation);
      }
    }
  }
}

// ---- refusals

// A field with something wrong about it.
struct Wrong {
  std::string what;
  DType dtype;
  Shape shape;
  Device device;
};

// `right` is the device of the operations, which does not have the other kind's memory.
inline std::vector<Wrong> wrongs_of(const OpField& field, Device right = {}) {
  const auto extents = field.shape.extents();
  const auto with = [&](std::size_t dimension, std::int64_t more) {
    std::vector<std::int64_t> changed(extents.begin(), extents.end());
    changed[dimension] += more;
    return Shape(std::span<const std::int64_t>(changed));
  };
  const Device other{right.kind == DeviceKind::kCpu ? DeviceKind::kCuda : DeviceKind::kCpu, 0};
  std::vector<Wrong> wrongs = {{"type i64", DType::kI64, field.shape, right},
                               {"device " + name(other), field.dtype, field.shape, other}};
  const auto shape = [&](const std::string& what, const Shape& wrong) {
    wrongs.push_back({what, field.dtype, wrong, right});
  };
  const std::size_t last = extents.size() - 1;
  const Freedom freedom = field.freedom;
  if (freedom == Freedom::kShape) return wrongs;
  const bool first_is_free = freedom == Freedom::kFirst || freedom == Freedom::kExtents;
  const bool last_is_free = freedom == Freedom::kLast || freedom == Freedom::kExtents;
  if (!first_is_free) shape("one more in dimension 0", with(0, 1));
  if (last > 0 && !last_is_free) shape("one more in the last dimension", with(last, 1));
  if (freedom != Freedom::kElements) {
    std::vector<std::int64_t> deeper(extents.begin(), extents.end());
    deeper.insert(deeper.begin(), 1);
    shape("one dimension more", Shape(std::span<const std::int64_t>(deeper)));
  }
  return wrongs;
}

// That whatever is wrong with one field of the case is refused, and nothing is written.
inline void expect_refusals(Ops& ops, const OpDescription& description, const OpCase& one) {
  const Place place{ops.device()};
  CaseMemory memory(one, 1, place);
  memory.bring();
  const ScratchMemory scratch(one.scratch ? one.scratch(ops) : 0, place.device);
  for (const OpField& field : one.fields) {
    for (const Wrong& wrong : wrongs_of(field, place.device)) {
      SCOPED_TRACE(fmt::format("{}: {}, {} with {}, by {}", description.name, one.name, field.name,
                               wrong.what, ops.name()));
      FieldMemory replaced(wrong.dtype, wrong.shape, true, place);
      replaced.bring();
      const auto before = replaced.content();
      Tensors tensors = memory.tensors();
      tensors.put(field.name,
                  Tensor(replaced.operand().data(), wrong.dtype, wrong.shape, wrong.device));
      ops.use_scratch(scratch.tensor());
      try {
        one.run(ops, tensors);
        ADD_FAILURE() << "was not refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
        EXPECT_TRUE(std::string(error.what()).starts_with(description.operation() + ": "))
            << error.what();
      }
      ops.synchronize();
      ops.use_scratch({});
      memory.fetch();
      replaced.fetch();
      EXPECT_TRUE(replaced.content() == before && replaced.canaries_are_intact());
      for (const OpField& other : one.fields) {
        EXPECT_TRUE(memory.field(other.name).content() == memory.saved(other.name))
            << other.name << " was written to";
      }
    }
  }
}

inline void expect_refusals(Ops& ops, const OpDescription& description) {
  for (const OpCase& one : description.cases(DType::kBF16)) {
    const bool empty = std::any_of(one.fields.begin(), one.fields.end(),
                                   [](const OpField& field) { return field.bytes() == 0; });
    const bool large = one.bytes() > (1 << 20);
    if (!empty && !large) expect_refusals(ops, description, one);
  }
}

// ---- one test for each operation: fixtures are TestWithParam<OpDescription>

inline std::string test_name(const ::testing::TestParamInfo<OpDescription>& info) {
  return info.param.name;
}

}  // namespace lockstep::ops_test

namespace lockstep::bench {
inline void PrintTo(const OpDescription& description, std::ostream* out) {
  *out << description.name;
}
}  // namespace lockstep::bench
