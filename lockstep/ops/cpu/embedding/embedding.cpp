#include "lockstep/ops/cpu/embedding/embedding.h"

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/ops/check.h"
#include "lockstep/ops/cpu/elementwise/elementwise.h"
#include "lockstep/ops/cpu/embedding/kernels.h"
#include "lockstep/ops/cpu/team/split.h"

namespace lockstep::cpu {
namespace {

const void* data_or_null(const Tensor& tensor) {
  return ops::is_given(tensor) ? tensor.data() : nullptr;
}
const std::int32_t* indices_or_null(const Tensor& tensor) {
  return ops::is_given(tensor) ? tensor.as<const std::int32_t>().data() : nullptr;
}

void check_all_indices(const std::string& operation, const Tensor& tokens, const Tensor& table,
                       std::int64_t vocabulary, const Tensor& types, const Tensor& types_table) {
  if (ops::is_given(table)) {
    ops::check_indices(tokens, vocabulary > 0 ? vocabulary : table.shape()[0],
                       operation + ": tokens");
  }
  if (ops::is_given(types_table)) {
    ops::check_indices(types, types_table.shape()[0], operation + ": types");
  }
}

// The rows of dy in the order of the entries that they belong to, so that the rows of an entry are
// summed at once and rounded once.
struct Order {
  std::vector<std::uint32_t> rows;
  std::vector<std::uint32_t> entries;  // those that have rows, ascending
  std::vector<std::size_t> begins;     // of an entry's rows; one more at the end
};

// Of rows whose entry is among `entries`.
template <class EntryOf>
Order order_by(std::size_t rows, std::int64_t entries, EntryOf&& entry_of) {
  std::vector<std::uint64_t> keys;  // entry, then row
  keys.reserve(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto entry = static_cast<std::int64_t>(entry_of(row));
    if (entry < 0 || entry >= entries) continue;
    keys.push_back(static_cast<std::uint64_t>(entry) << 32 | row);
  }
  std::sort(keys.begin(), keys.end());
  Order order;
  order.rows.reserve(keys.size());
  for (const std::uint64_t key : keys) {
    const auto entry = static_cast<std::uint32_t>(key >> 32);
    if (order.entries.empty() || order.entries.back() != entry) {
      order.entries.push_back(entry);
      order.begins.push_back(order.rows.size());
    }
    order.rows.push_back(static_cast<std::uint32_t>(key));
  }
  order.begins.push_back(keys.size());
  return order;
}

// Threads share the columns, so that no two of them write the same element.
void add_to_table(const Cpu& cpu, const Tensor& dy, const Tensor& table, const Order& order) {
  const EmbeddingKernels& kernels = embedding_kernels(cpu.isa);
  const DType type = dy.dtype();
  const auto kernel =
      table.dtype() == type ? kernels.add_rows[type] : kernels.add_rows_to_f32[type];
  const auto width = static_cast<std::size_t>(dy.shape()[1]);
  split(cpu.team, width, kElementGrain, dy.bytes(), [&](Range columns) {
    std::vector<float> sums(columns.size());
    for (std::size_t i = 0; i < order.entries.size(); ++i) {
      const std::size_t element = order.entries[i] * width + columns.begin;
      kernel({.dy = dy.data() + columns.begin * size_of(type),
              .width = width,
              .rows = order.rows.data() + order.begins[i],
              .row_count = order.begins[i + 1] - order.begins[i],
              .columns = columns.size(),
              .sums = sums.data(),
              .gradient = table.data() + element * size_of(table.dtype())});
    }
  });
}

}  // namespace

void run(const Cpu& cpu, const ops::Embedding& call) {
  ops::check(call);
  check_all_indices("embedding", call.tokens, call.tokens_table, call.vocabulary, call.types,
                    call.types_table);
  const DropoutKey key = dropout_key(call.dropout);
  const EmbeddingRows all{
      .begin = 0,
      .end = static_cast<std::size_t>(call.y.shape()[0]),
      .width = static_cast<std::size_t>(call.y.shape()[1]),
      .sequence = static_cast<std::size_t>(call.sequence),
      .tokens = indices_or_null(call.tokens),
      .types = indices_or_null(call.types),
      .tokens_table = call.tokens_table.data(),
      .first_token = call.first_token,
      .tokens_here = call.tokens_table.shape()[0],
      .positions_table = data_or_null(call.positions_table),
      .types_table = data_or_null(call.types_table),
      .dropout = call.dropout.probability > 0 ? &key : nullptr,
      .y = call.y.data(),
  };
  const auto kernel = embedding_kernels(cpu.isa).forward[call.y.dtype()];
  split(cpu.team, all.end, 1, 2 * call.y.bytes(), [&](Range range) {
    EmbeddingRows rows = all;
    rows.begin = range.begin;
    rows.end = range.end;
    kernel(rows);
  });
}

void run(const Cpu& cpu, const ops::EmbeddingBackward& call) {
  ops::check(call);
  check_all_indices("embedding_backward", call.tokens, call.dtokens_table, call.vocabulary,
                    call.types, call.dtypes_table);
  if (call.dropout.probability > 0) {
    run(cpu, ops::Drop{.dropout = call.dropout, .x = call.dy, .y = call.dy});
  }
  const std::size_t rows = call.tokens.elements();
  if (ops::is_given(call.dtokens_table)) {
    const auto* tokens = indices_or_null(call.tokens);
    add_to_table(cpu, call.dy, call.dtokens_table,
                 order_by(rows, call.dtokens_table.shape()[0],
                          [&](std::size_t row) { return tokens[row] - call.first_token; }));
  }
  if (ops::is_given(call.dpositions_table)) {
    const auto sequence = static_cast<std::size_t>(call.sequence);
    add_to_table(cpu, call.dy, call.dpositions_table,
                 order_by(rows, call.dpositions_table.shape()[0],
                          [&](std::size_t row) { return row % sequence; }));
  }
  if (ops::is_given(call.dtypes_table)) {
    const auto* types = indices_or_null(call.types);
    add_to_table(
        cpu, call.dy, call.dtypes_table,
        order_by(rows, call.dtypes_table.shape()[0], [&](std::size_t row) { return types[row]; }));
  }
}

}  // namespace lockstep::cpu
