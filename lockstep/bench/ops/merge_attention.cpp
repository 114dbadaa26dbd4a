// What attention to the keys of other ranks needs besides: the merging of results, and columns of
// rows that travel.
#include <fmt/format.h>

#include <limits>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

// ---- merge_attention

// Now and then one side saw no key, or neither did.
template <class S>
void hide_sides(const Tensors& t) {
  const auto before = t["log_sum"].as<S>(), more = t["more_log_sum"].as<S>();
  constexpr S kNone = -std::numeric_limits<S>::infinity();
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (i % 7 == 3 || i % 7 == 6) before[i] = kNone;
    if (i % 7 == 5 || i % 7 == 6) more[i] = kNone;
  }
}

OpCase merge_case(DType dtype, std::int64_t queries, std::int64_t heads, std::int64_t head_size) {
  OpCase one;
  one.name = fmt::format("{} queries, {} heads of {}", queries, heads, head_size);
  const DType statistics = statistic(dtype);
  const Shape rows{queries, heads * head_size};
  const Shape numbers{heads, queries};
  const Tolerance tolerance{.relative = 4, .noise = 64};
  one.fields = {input("more", dtype, rows, normal()),
                input("more_log_sum", statistics, numbers, normal(3)),
                updated("out", statistics, rows, normal(), tolerance),
                updated("log_sum", statistics, numbers, normal(3), tolerance)};
  one.prepare = [statistics](Ops&, const Tensors& t) {
    if (statistics == DType::kF64) return hide_sides<double>(t);
    hide_sides<float>(t);
  };
  one.run = [heads](Ops& ops, const Tensors& t) {
    ops.run(ops::MergeAttention{.heads = heads,
                                .more = t["more"],
                                .more_log_sum = t["more_log_sum"],
                                .out = t["out"],
                                .log_sum = t["log_sum"]});
  };
  return one;
}

std::vector<OpCase> merge_cases(DType dtype) {
  return {merge_case(dtype, 1, 1, 1),    merge_case(dtype, 7, 3, 5),
          merge_case(dtype, 0, 2, 4),    merge_case(dtype, 67, 2, 64),
          merge_case(dtype, 3, 1, 1031), merge_case(dtype, 2, 300, 4)};
}

OpCase merge_typical(DType dtype) {
  return merge_case(dtype, Typical::kRows, Typical::kHeads, Typical::kHeadSize);
}

std::vector<OpCase> merge_large(DType dtype) {
  return {merge_case(dtype, Large::kLlamaRows, Large::kLlamaHeads, Large::kLlamaHeadSize)};
}

// ---- copy_columns

struct Columns {
  std::int64_t rows, columns;
  std::int64_t first = 0;     // of the rows that are read
  std::int64_t to_first = 0;  // of those that are written
  bool accumulate = false;
  std::int64_t further = 3;  // columns behind those that are written; one less where it reads
};

OpCase columns_case(DType from, DType to, const Columns& copied) {
  OpCase one;
  one.name = fmt::format("{} to {}, {} x {} from {} to {}{}", name(from), name(to), copied.rows,
                         copied.columns, copied.first, copied.to_first,
                         copied.accumulate ? ", added" : "");
  one.fields = {input("from", from,
                      {copied.rows, copied.first + copied.columns +
                                        std::max<std::int64_t>(0, copied.further - 1)},
                      normal(), Freedom::kLast),
                updated("to", to, {copied.rows, copied.to_first + copied.columns + copied.further},
                        normal(), {}, Freedom::kLast)};
  one.run = [copied](Ops& ops, const Tensors& t) {
    ops.run(ops::CopyColumns{.from = {t["from"], copied.first},
                             .to = {t["to"], copied.to_first},
                             .columns = copied.columns,
                             .accumulate = copied.accumulate});
  };
  return one;
}

std::vector<OpCase> columns_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const DType other : {dtype, statistic(dtype)}) {
    for (const Columns& copied :
         {Columns{1, 1}, Columns{5, 7, 3, 2}, Columns{5, 7, 3, 2, true}, Columns{0, 4},
          Columns{3, 131, 0, 1}, Columns{3, 1031, 1, 0, true}, Columns{5, 24, 8, 16, false, 0},
          Columns{9, 2056, 0, 8, true, 0}}) {
      cases.push_back(columns_case(dtype, other, copied));
      if (other != dtype) cases.push_back(columns_case(other, dtype, copied));
    }
  }
  return cases;
}

OpCase columns_typical(DType dtype) {
  return columns_case(dtype, dtype,
                      {.rows = Typical::kRows, .columns = Typical::kWidth, .further = 0});
}

// Keys and values of a Llama, to rows of their own.
std::vector<OpCase> columns_large(DType dtype) {
  constexpr std::int64_t kColumns = 2 * Large::kLlamaKvHeads * Large::kLlamaHeadSize;
  return {columns_case(dtype, dtype,
                       {.rows = Large::kLlamaRows,
                        .columns = kColumns,
                        .first = Large::kLlamaHeads * Large::kLlamaHeadSize,
                        .further = 0})};
}

}  // namespace

std::vector<OpDescription> describe_merge_attention() {
  return {{"merge_attention", merge_cases, merge_typical, {merge_large}},
          {"copy_columns", columns_cases, columns_typical, {columns_large}}};
}

}  // namespace lockstep::bench
