#include <fmt/format.h>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

struct Step {
  std::int64_t batch, positions, heads, kv_heads, head_size;
  bool rotary = false;
  ops::RotaryScaling scaling = {};
  std::int64_t window = 0;
  std::int64_t rotary_size = 0;
  float softcap = 0;
  bool longrope = false;  // every pair has its own slowing, and an amplitude other than 1

  std::int64_t turned() const { return rotary_size > 0 ? rotary_size : head_size; }
  std::int64_t query_columns() const { return heads * head_size; }
  std::int64_t key_columns() const { return kv_heads * head_size; }
};

OpCase step_case(DType dtype, const Step& step) {
  OpCase one;
  one.name = fmt::format("{} x {}, {} heads of {}, {} of keys{}", step.batch, step.positions,
                         step.heads, step.head_size, step.kv_heads, step.rotary ? ", rotary" : "");
  if (step.scaling.factor != 1) {
    one.name += fmt::format(", {} times as slow", step.scaling.factor);
  }
  if (step.window > 0) one.name += fmt::format(", window {}", step.window);
  if (step.rotary_size > 0) one.name += fmt::format(", {} of each turn", step.rotary_size);
  if (step.softcap > 0) one.name += fmt::format(", capped at {}", step.softcap);
  if (step.longrope) one.name += ", each pair at its own pace";
  // As the tolerance of rotary, for keys in the cache; probabilities weigh values with a standard
  // deviation of 1.
  const double turned = step.rotary ? 16 + 8 * static_cast<double>(step.positions) : 0;
  const Tolerance stored{.noise = turned};
  const Tolerance attended{.relative = 4,
                           .noise = 4 * noise_of_sum(step.positions + step.head_size) + 4 * turned,
                           .coarse = 4};
  one.fields = {
      input("lengths", DType::kI32, {step.batch}, indices(step.positions)),
      input("packed", dtype, {step.batch, step.query_columns() + 2 * step.key_columns()}, normal()),
      updated("cache", dtype, {step.batch, step.positions, 2 * step.key_columns()}, normal(),
              stored),
      output("out", dtype, {step.batch, step.query_columns()}, attended)};
  const Slowing slowing(step.longrope ? step.turned() / 2 : 0);
  one.run = [step, slowing](Ops& ops, const Tensors& t) {
    ops.run(ops::DecodeAttention{.heads = step.heads,
                                 .kv_heads = step.kv_heads,
                                 .head_size = step.head_size,
                                 .scale = static_cast<float>(balanced(step.head_size)),
                                 .softcap = step.softcap,
                                 .window = step.window,
                                 .rotary = step.rotary,
                                 .rotary_size = step.rotary_size,
                                 .scaling = step.scaling,
                                 .slowing = slowing.tensor(),
                                 .amplitude = step.longrope ? 1.2f : 1,
                                 .lengths = t["lengths"],
                                 .packed = t["packed"],
                                 .cache = t["cache"],
                                 .out = t["out"]});
  };
  one.scratch = [step, dtype](const Ops& ops) {
    return ops.decode_attention_scratch({.batch = step.batch,
                                         .queries = 1,
                                         .keys = step.positions,
                                         .heads = step.heads,
                                         .kv_heads = step.kv_heads,
                                         .head_size = step.head_size,
                                         .causal = true,
                                         .dtype = dtype});
  };
  one.flops = 4 * static_cast<double>(step.batch * step.positions * step.query_columns());
  return one;
}

std::vector<OpCase> step_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Step& step :
       {Step{1, 1, 1, 1, 1}, Step{1, 5, 1, 1, 4}, Step{3, 17, 2, 1, 6, true}, Step{2, 64, 4, 4, 64},
        Step{5, 65, 4, 2, 64, true}, Step{2, 300, 6, 2, 128, true}, Step{3, 200, 9, 1, 40},
        Step{1, 131, 12, 1, 16, true}, Step{2, 70, 3, 3, 250}, Step{1, 90, 5, 5, 256, true},
        Step{2, 40, 4, 2, 32, true, {.factor = 8, .original_positions = 200}},
        Step{3, 17, 2, 1, 6, true, {}, 0, 0, 1.5}, Step{2, 131, 4, 2, 64, true, {}, 50, 0, 50},
        Step{0, 3, 1, 1, 8}}) {
    cases.push_back(step_case(dtype, step));
  }
  return cases;
}

// With a window, with heads that turn in part, and with pairs at their own paces.
std::vector<OpCase> window_step_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Step& step :
       {Step{1, 5, 1, 1, 4, false, {}, 1}, Step{3, 17, 2, 1, 6, true, {}, 4},
        Step{2, 70, 4, 2, 64, true, {}, 30, 16}, Step{2, 40, 3, 3, 20, true, {}, 0, 6},
        Step{1, 131, 12, 1, 16, true, {}, 200}, Step{2, 300, 6, 2, 128, true, {}, 129, 64},
        Step{3, 200, 9, 1, 40, true, {}, 1, 8}, Step{2, 90, 4, 2, 64, true, {}, 65}}) {
    cases.push_back(step_case(dtype, step));
  }
  for (Step step : {Step{2, 23, 4, 2, 32, true}, Step{1, 17, 3, 1, 20, true, {}, 0, 14}}) {
    step.longrope = true;
    cases.push_back(step_case(dtype, step));
  }
  return cases;
}

OpCase window_step_typical(DType dtype) {
  Step step{1, Typical::kSequence, Typical::kHeads, Typical::kHeads, Typical::kHeadSize};
  step.window = Typical::kSequence / 4;
  return step_case(dtype, step);
}

OpCase step_typical(DType dtype) {
  return step_case(dtype,
                   {1, Typical::kSequence, Typical::kHeads, Typical::kHeads, Typical::kHeadSize});
}

// Eight texts together.
std::vector<OpCase> step_large(DType dtype) {
  return {step_case(dtype, {8, Large::kLlamaSequence, Large::kLlamaHeads, Large::kLlamaKvHeads,
                            Large::kLlamaHeadSize, true})};
}

std::vector<OpCase> window_step_large(DType dtype) {
  Step step{
      8,   Large::kLlamaSequence, Large::kLlamaHeads, Large::kLlamaKvHeads, Large::kLlamaHeadSize,
      true};
  step.window = Large::kLlamaSequence / 4;
  return {step_case(dtype, step)};
}

}  // namespace

std::vector<OpDescription> describe_decode_attention() {
  return {{"decode_attention", step_cases, step_typical, {step_large}},
          {"decode_attention_window",
           window_step_cases,
           window_step_typical,
           {window_step_large},
           "decode_attention"}};
}

}  // namespace lockstep::bench
