#include <fmt/format.h>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

using ops::Gate;

std::string text(Gate gate) { return gate == Gate::kSilu ? "" : ", GELU"; }

OpCase swiglu_case(DType dtype, std::int64_t rows, std::int64_t width, Gate gate = Gate::kSilu) {
  OpCase one;
  one.name = fmt::format("{} x {}{}", rows, width, text(gate));
  one.fields = {input("gate_up", dtype, {rows, 2 * width}, normal(1.5)),
                output("y", dtype, {rows, width}, {.noise = 48})};
  one.run = [gate](Ops& ops, const Tensors& t) {
    ops.run(ops::SwiGlu{.gate_up = t["gate_up"], .y = t["y"], .gate = gate});
  };
  one.gradient = Gradient{
      .inputs = {"gate_up"}, .outputs = {"y"}, .backward = [gate](Ops& ops, const Tensors& t) {
        ops.run(ops::SwiGluBackward{
            .gate_up = t["gate_up"], .dy = t["dy"], .dgate_up = t["dgate_up"], .gate = gate});
      }};
  return one;
}

OpCase swiglu_backward_case(DType dtype, std::int64_t rows, std::int64_t width, bool in_place,
                            Gate gate = Gate::kSilu) {
  OpCase one;
  one.name = fmt::format("{} x {}{}{}", rows, width, in_place ? ", in place" : "", text(gate));
  const Shape wide{rows, 2 * width};
  const Tolerance tolerance{.noise = 64};
  if (in_place) {
    one.fields = {updated("gate_up", dtype, wide, normal(1.5), tolerance)};
  } else {
    one.fields = {input("gate_up", dtype, wide, normal(1.5)),
                  output("dgate_up", dtype, wide, tolerance)};
  }
  one.fields.push_back(input("dy", dtype, {rows, width}, normal()));
  one.run = [in_place, gate](Ops& ops, const Tensors& t) {
    ops.run(ops::SwiGluBackward{.gate_up = t["gate_up"],
                                .dy = t["dy"],
                                .dgate_up = in_place ? t["gate_up"] : t["dgate_up"],
                                .gate = gate});
  };
  return one;
}

constexpr std::pair<std::int64_t, std::int64_t> kRowsOfGates[] = {{1, 1},  {3, 17}, {17, 3}, {0, 5},
                                                                  {5, 64}, {7, 67}, {2, 131}};

std::vector<OpCase> swiglu_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Gate gate : {Gate::kSilu, Gate::kGeluTanh}) {
    for (const auto& [rows, width] : kRowsOfGates) {
      cases.push_back(swiglu_case(dtype, rows, width, gate));
    }
  }
  return cases;
}

std::vector<OpCase> swiglu_backward_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Gate gate : {Gate::kSilu, Gate::kGeluTanh}) {
    for (const auto& [rows, width] : kRowsOfGates) {
      cases.push_back(swiglu_backward_case(dtype, rows, width, false, gate));
      cases.push_back(swiglu_backward_case(dtype, rows, width, true, gate));
    }
  }
  return cases;
}

OpCase swiglu_typical(DType dtype) { return swiglu_case(dtype, Typical::kRows, Typical::kHidden); }
OpCase swiglu_backward_typical(DType dtype) {
  return swiglu_backward_case(dtype, Typical::kRows, Typical::kHidden, false);
}
std::vector<OpCase> swiglu_large(DType dtype) {
  return {swiglu_case(dtype, Large::kLlamaRows, Large::kLlamaHidden)};
}
std::vector<OpCase> swiglu_backward_large(DType dtype) {
  return {swiglu_backward_case(dtype, Large::kLlamaRows, Large::kLlamaHidden, false)};
}

}  // namespace

std::vector<OpDescription> describe_swiglu() {
  return {{"swiglu", swiglu_cases, swiglu_typical, {swiglu_large, kRowsBar}},
          {"swiglu_backward",
           swiglu_backward_cases,
           swiglu_backward_typical,
           {swiglu_backward_large, kRowsBar}}};
}

}  // namespace lockstep::bench
