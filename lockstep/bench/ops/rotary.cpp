#include <fmt/format.h>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

struct Turn {
  std::int64_t batch, sequence, heads, head_size;
  std::int64_t first = 0;
  bool backward = false;
  std::int64_t first_position = 0;
  std::int64_t further_columns = 2;
  ops::RotaryScaling scaling = {};
  std::int64_t stride = 0;
  bool longrope = false;  // every pair has its own slowing, and an amplitude other than 1

  std::int64_t columns() const {
    return first + heads * (stride > 0 ? stride : head_size) + further_columns;
  }
};

// Of its pairs some turn as ever, some slower, and some in between.
constexpr ops::RotaryScaling kScaling = {
    .factor = 8, .original_positions = 200, .low_turns = 1, .high_turns = 4};

OpCase rotary_case(DType dtype, const Turn& turn) {
  OpCase one;
  one.name = fmt::format("{} x {}, {} heads of {} from {}{}", turn.batch, turn.sequence, turn.heads,
                         turn.head_size, turn.first, turn.backward ? ", backward" : "");
  if (turn.first_position > 0) one.name += fmt::format(", position {} on", turn.first_position);
  if (turn.stride > 0) one.name += fmt::format(", each of {}", turn.stride);
  if (turn.scaling.factor != 1) {
    one.name += fmt::format(", {} times as slow", turn.scaling.factor);
    if (turn.scaling.original_positions > 0) {
      one.name += fmt::format(" from {} positions on", turn.scaling.original_positions);
    }
  }
  if (turn.longrope) one.name += ", each pair at its own pace";
  // An angle in f32 misses its place by as many units as it has turned.
  const Tolerance tolerance{.noise =
                                16 + 8 * static_cast<double>(turn.first_position + turn.sequence)};
  one.fields = {updated("x", dtype, {turn.batch * turn.sequence, turn.columns()}, normal(),
                        tolerance, Freedom::kExtents)};
  const Slowing slowing(turn.longrope ? turn.head_size / 2 : 0);
  const auto run = [turn, slowing](Ops& ops, const Tensor& rows, bool backward) {
    ops.run(ops::Rotary{.x = {rows, turn.first},
                        .heads = turn.heads,
                        .head_size = turn.head_size,
                        .stride = turn.stride,
                        .sequence = turn.sequence,
                        .first_position = turn.first_position,
                        .scaling = turn.scaling,
                        .slowing = slowing.tensor(),
                        .amplitude = turn.longrope ? 1.2f : 1,
                        .backward = backward});
  };
  one.run = [run, turn](Ops& ops, const Tensors& t) { run(ops, t["x"], turn.backward); };
  one.gradient = Gradient{
      .inputs = {"x"}, .outputs = {"x"}, .backward = [run, turn](Ops& ops, const Tensors& t) {
        run(ops, t["dx"], !turn.backward);
      }};
  return one;
}

std::vector<OpCase> rotary_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Turn& turn :
       {Turn{1, 1, 1, 2}, Turn{2, 3, 1, 4, 5}, Turn{1, 17, 3, 6, 0, true}, Turn{3, 7, 2, 64, 64},
        Turn{0, 5, 1, 2}, Turn{1, 131, 2, 34, 1, true}, Turn{1, 1, 3, 8, 0, false, 1023},
        Turn{2, 21, 1, 6, 2, true, 13}, Turn{2, 19, 2, 10, 1, false, 3, 2, {.factor = 2.5}},
        Turn{1, 67, 2, 32, 0, true, 5, 1, kScaling}}) {
    cases.push_back(rotary_case(dtype, turn));
  }
  for (Turn turn : {Turn{2, 19, 3, 14, 1, false, 11}, Turn{1, 37, 2, 32, 0, true}}) {
    turn.longrope = true;
    cases.push_back(rotary_case(dtype, turn));
  }
  return cases;
}

// Of a part of every head.
Turn part(Turn turn, std::int64_t stride) {
  turn.stride = stride;
  return turn;
}

std::vector<OpCase> rotary_part_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Turn& turn : {part({1, 1, 1, 2}, 3), part({2, 17, 3, 6, 4, true}, 20),
                           part({1, 67, 2, 16, 0}, 64), part({2, 9, 2, 10, 1, false, 7}, 10)}) {
    cases.push_back(rotary_case(dtype, turn));
  }
  return cases;
}

OpCase rotary_part_typical(DType dtype) {
  return rotary_case(
      dtype, part({Typical::kBatch, Typical::kSequence, Typical::kHeads, Typical::kHeadSize / 4},
                  Typical::kHeadSize));
}

OpCase rotary_typical(DType dtype) {
  return rotary_case(dtype,
                     {Typical::kBatch, Typical::kSequence, Typical::kHeads, Typical::kHeadSize});
}

std::vector<OpCase> rotary_large(DType dtype) {
  return {rotary_case(dtype, {.batch = Large::kLlamaBatch,
                              .sequence = Large::kLlamaSequence,
                              .heads = Large::kLlamaHeads,
                              .head_size = Large::kLlamaHeadSize,
                              .further_columns = 0})};
}

std::vector<OpCase> rotary_part_large(DType dtype) {
  Turn turn = part(
      {Large::kLlamaBatch, Large::kLlamaSequence, Large::kLlamaHeads, Large::kLlamaHeadSize / 4},
      Large::kLlamaHeadSize);
  turn.further_columns = 0;
  return {rotary_case(dtype, turn)};
}

}  // namespace

std::vector<OpDescription> describe_rotary() {
  return {{"rotary", rotary_cases, rotary_typical, {rotary_large}},
          {"rotary_part", rotary_part_cases, rotary_part_typical, {rotary_part_large}, "rotary"}};
}

}  // namespace lockstep::bench
