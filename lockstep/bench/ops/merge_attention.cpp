// What attention to the keys of other ranks needs besides: the merging of results, and columns of
// rows that travel.
#include <fmt/format.h>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

// ---- merge_attention

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
  return {merge_case(dtype, 1, 1, 1), merge_case(dtype, 7, 3, 5), merge_case(dtype, 0, 2, 4),
          merge_case(dtype, 67, 2, 64), merge_case(dtype, 3, 1, 1031)};
}

OpCase merge_typical(DType dtype) {
  return merge_case(dtype, Typical::kRows, Typical::kHeads, Typical::kHeadSize);
}

// ---- copy_columns

struct Columns {
  std::int64_t rows, columns;
  std::int64_t first = 0;     // of the rows that are read
  std::int64_t to_first = 0;  // of those that are written
  bool accumulate = false;
};

OpCase columns_case(DType from, DType to, const Columns& copied) {
  OpCase one;
  one.name = fmt::format("{} to {}, {} x {} from {} to {}{}", name(from), name(to), copied.rows,
                         copied.columns, copied.first, copied.to_first,
                         copied.accumulate ? ", added" : "");
  one.fields = {input("from", from, {copied.rows, copied.first + copied.columns + 2}, normal(),
                      Freedom::kLast),
                updated("to", to, {copied.rows, copied.to_first + copied.columns + 3}, normal(), {},
                        Freedom::kLast)};
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
          Columns{3, 131, 0, 1}, Columns{3, 1031, 1, 0, true}}) {
      cases.push_back(columns_case(dtype, other, copied));
      if (other != dtype) cases.push_back(columns_case(other, dtype, copied));
    }
  }
  return cases;
}

OpCase columns_typical(DType dtype) {
  return columns_case(dtype, dtype, {.rows = Typical::kRows, .columns = Typical::kWidth});
}

}  // namespace

std::vector<OpDescription> describe_merge_attention() {
  return {
      {.name = "merge_attention", .cases = merge_cases, .typical = merge_typical, .on_gpus = false},
      {.name = "copy_columns",
       .cases = columns_cases,
       .typical = columns_typical,
       .on_gpus = false}};
}

}  // namespace lockstep::bench
