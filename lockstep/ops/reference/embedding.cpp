#include <algorithm>
#include <numeric>
#include <vector>

#include "lockstep/ops/check.h"
#include "lockstep/ops/reference/dropout.h"
#include "lockstep/ops/reference/elements.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep::ops::reference {
namespace {

void check_all_indices(const std::string& operation, const Tensor& tokens, const Tensor& table,
                       std::int64_t vocabulary, const Tensor& types, const Tensor& types_table) {
  if (is_given(table)) {
    check_indices(tokens, vocabulary > 0 ? vocabulary : table.shape()[0], operation + ": tokens");
  }
  if (is_given(types_table)) check_indices(types, types_table.shape()[0], operation + ": types");
}

// table[entry] += the sum of the rows of dy whose entry it is, for every entry of the table. A sum
// is rounded once, so the rows of an entry are brought together first.
template <class T>
void add_rows(const Tensor& table, const Elements<T>& dy,
              const std::vector<std::int64_t>& entries) {
  const std::int64_t width = table.shape()[1];
  std::vector<std::int64_t> rows(entries.size());
  std::iota(rows.begin(), rows.end(), 0);
  const auto entry_of = [&](std::int64_t row) { return entries[static_cast<std::size_t>(row)]; };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](std::int64_t a, std::int64_t b) { return entry_of(a) < entry_of(b); });
  with_float_type(table.dtype(), [&]<class G>(G) {
    const Elements<G> gradient(table);
    for (auto first = rows.begin(); first != rows.end();) {
      const std::int64_t entry = entry_of(*first);
      const auto last =
          std::find_if(first, rows.end(), [&](auto row) { return entry_of(row) != entry; });
      const bool is_here = entry >= 0 && entry < table.shape()[0];
      for (std::int64_t i = 0; is_here && i < width; ++i) {
        double sum = 0;
        for (auto row = first; row != last; ++row) sum += dy(*row, i);
        gradient.add(entry, i, sum);
      }
      first = last;
    }
  });
}

// Counted from `first`.
std::vector<std::int64_t> indices(const Tensor& tensor, std::int64_t first = 0) {
  const auto elements = tensor.as<const std::int32_t>();
  std::vector<std::int64_t> result(elements.begin(), elements.end());
  for (std::int64_t& index : result) index -= first;
  return result;
}

}  // namespace

void run(const Embedding& op) {
  check_all_indices("embedding", op.tokens, op.tokens_table, op.vocabulary, op.types,
                    op.types_table);
  const auto tokens = indices(op.tokens, op.first_token);
  const auto types = is_given(op.types) ? indices(op.types) : std::vector<std::int64_t>{};
  with_float_type(op.y.dtype(), [&]<class T>(T) {
    const Elements<T> of_token(op.tokens_table), of_position(op.positions_table),
        of_type(op.types_table), y(op.y);
    const std::int64_t width = op.y.shape()[1];
    for (std::int64_t row = 0; row < op.y.shape()[0]; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const bool is_here = tokens[at] >= 0 && tokens[at] < op.tokens_table.shape()[0];
      for (std::int64_t i = 0; i < width; ++i) {
        double sum = is_here ? of_token(tokens[at], i) : 0;
        if (of_position.given()) sum += of_position(row % op.sequence, i);
        if (of_type.given()) sum += of_type(types[at], i);
        y.set(row, i, sum * dropout_factor(op.dropout, row * width + i));
      }
    }
  });
}

void run(const EmbeddingBackward& op) {
  check_all_indices("embedding_backward", op.tokens, op.dtokens_table, op.vocabulary, op.types,
                    op.dtypes_table);
  if (op.dropout.probability > 0) run(Drop{.dropout = op.dropout, .x = op.dy, .y = op.dy});
  with_float_type(op.dy.dtype(), [&]<class T>(T) {
    const Elements<T> dy(op.dy);
    if (is_given(op.dtokens_table))
      add_rows(op.dtokens_table, dy, indices(op.tokens, op.first_token));
    if (is_given(op.dpositions_table)) {
      std::vector<std::int64_t> positions(op.tokens.elements());
      for (std::size_t row = 0; row < positions.size(); ++row) {
        positions[row] = static_cast<std::int64_t>(row) % op.sequence;
      }
      add_rows(op.dpositions_table, dy, positions);
    }
    if (is_given(op.dtypes_table)) add_rows(op.dtypes_table, dy, indices(op.types));
  });
}

}  // namespace lockstep::ops::reference
