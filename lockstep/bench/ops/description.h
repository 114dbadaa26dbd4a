// One description of every operation: its cases, how their tensors begin, which of them it writes,
// how near a result must be, and what its gradient is. Tests compare an implementation with the
// reference by it, check gradients by finite differences, and see that wrong arguments are refused;
// `lockstep bench ops` times the typical case, on a GPU the large ones. docs/ops.md says how to add
// one.
//
// A case is a list of fields, one for each tensor that is given, and a function that runs the
// operation on them. Inside, fields are found by name, and one that the case lacks is a tensor that
// is not given, so one function serves all cases:
//
//   ops.run(ops::Linear{.x = t["x"], .weight = t["weight"], .bias = t["bias"], .y = t["y"]});
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/ops/ops.h"

namespace lockstep::bench {

enum class Role {
  kInput,    // is read
  kOutput,   // is overwritten, whatever it held
  kUpdated,  // is read and written
};

// The initial elements of a field; irrelevant for outputs.
struct Fill {
  enum class Kind { kNormal, kUniform, kWide, kIndices, kTargets, kMask };
  Kind kind = Kind::kNormal;
  double first = 0;   // mean; lower end; exponent; limit; limit; share that is 1
  double second = 1;  // stddev; upper end; exponent
};
inline Fill normal(double stddev = 1, double mean = 0) {
  return {Fill::Kind::kNormal, mean, stddev};
}
inline Fill uniform(double from, double to) { return {Fill::Kind::kUniform, from, to}; }
// 2 to a power between, of either sign: subnormal, ordinary, too large for a type.
inline Fill wide(double from, double to) { return {Fill::Kind::kWide, from, to}; }
// i32 in [0, limit); targets are kNoTarget now and then.
inline Fill indices(std::int64_t limit) {
  return {Fill::Kind::kIndices, static_cast<double>(limit)};
}
inline Fill targets(std::int64_t limit) {
  return {Fill::Kind::kTargets, static_cast<double>(limit)};
}
inline Fill mask(double share_of_ones) { return {Fill::Kind::kMask, share_of_ones}; }

// How far an element may be from the reference's. With u the half of the last place at 1 (2^-24 for
// f32, 2^-8 for bf16, 2^-11 for f16), an element that should be r may be off by
//
//   relative * u(type) * |r|  +  noise * u(f32)  +  coarse * u(type)
//
// relative   2: both round the same number, one of them a little off, so one last place apart
// noise      of sums in f32: grows with the root of their length and the size of their terms
// coarse     of intermediate results that an implementation may keep in the compute type
struct Tolerance {
  double relative = 2;
  double noise = 0;
  double coarse = 0;

  double allowed(DType type, double reference) const;
};

// In what the shape of a field may differ, the other fields unchanged, with nothing being wrong.
enum class Freedom {
  kNone,
  kFirst,     // the first extent may be larger: rows of a table
  kLast,      // the last may: columns beside those of the heads
  kExtents,   // both may
  kElements,  // any shape of as many elements
  kShape,     // any shape
};

struct OpField {
  std::string name;
  Role role = Role::kInput;
  DType dtype = DType::kF32;
  Shape shape;
  Fill fill;
  Tolerance tolerance;  // of outputs
  Freedom freedom = Freedom::kNone;

  std::size_t bytes() const { return Tensor::bytes_of(dtype, shape); }
};

// The tensors of a case by name.
class Tensors {
 public:
  Tensor operator[](std::string_view name) const;  // not given where there is none
  void put(std::string name, const Tensor& tensor) { by_name_[std::move(name)] = tensor; }

 private:
  std::map<std::string, Tensor, std::less<>> by_name_;
};

using RunCase = std::function<void(Ops&, const Tensors&)>;

// What finite differences need to know. The loss is the sum of the elements of `outputs`, each
// times a weight of its own (or all times `weight`). `backward` is run after the case, with the
// gradients of the outputs in "d" + their names, and adds or writes those of the inputs to "d" +
// theirs, which begin at zero. A field that is both input and output has one gradient, which is
// updated in place.
struct Gradient {
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  RunCase backward;
  std::optional<double> weight;
};

struct OpCase {
  std::string name;  // "17 x 5 to 3, bias"
  std::vector<OpField> fields;
  RunCase run;
  // Fills inputs that follow from others (statistics of a forward), after all have been filled.
  RunCase prepare;
  std::function<std::size_t(const Ops&)> scratch;  // none: no bytes
  std::optional<Gradient> gradient;
  double flops = 0;                        // of matrix products
  std::optional<double> bytes_moved = {};  // where it is not what the fields say
  // Where peers have the operation: attention without mask and dropout.
  std::optional<ops::AttentionShape> attention = {};

  // What must be read and written: inputs and outputs once, what is updated twice.
  double bytes() const;
  const OpField* find(std::string_view field) const;
};

// What is timed on a GPU: shapes of GPT-2 124M on 65,536 tokens and of a Llama of 2048 columns on
// 16,384.
struct LargeCases {
  std::vector<OpCase> (*cases)(DType) = nullptr;
  double bar = 0;  // the least share of a copy's bytes per second that is good; 0: none
};

struct OpDescription {
  std::string name;  // of the operation, or of a use of it that is worth timing by itself
  // The odd cases of tests, and the one that is timed: as in GPT-2 124M on 4 x 1024 tokens. Every
  // description knows f32, bf16 and f16, and for finite differences f64.
  std::vector<OpCase> (*cases)(DType) = nullptr;
  OpCase (*typical)(DType) = nullptr;
  LargeCases large = {};
  std::string use_of = {};  // the operation whose use it is

  const std::string& operation() const { return use_of.empty() ? name : use_of; }
};

// All of them, by area.
const std::vector<OpDescription>& op_descriptions();

}  // namespace lockstep::bench
