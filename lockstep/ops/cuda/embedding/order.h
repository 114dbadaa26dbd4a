// Sorts the rows of a batch by the table entry that they belong to.
//
// A list has an entry (`keys`) and a row (`rows`) at every place. Entries ascend, and the rows of
// one entry ascend. A row whose index is not an entry of the table has the number of entries as its
// key, so it comes last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

struct RowOrder {
  const std::uint32_t* keys;
  const std::uint32_t* rows;
};

// The workspace of a sort: two lists, used alternately, and counters.
struct OrderWorkspace {
  std::uint32_t* keys[2];
  std::uint32_t* rows[2];
  std::uint32_t* counts;
};

// The number of counters of a sort of `rows` rows.
std::size_t order_counts(std::size_t rows);

// The entries of a table: `count` of `all`, from `first` on.
struct TableEntries {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t all = 0;
};

// Sorts by indices in device memory. An index outside [0, all) is recorded in `fault_word`.
RowOrder order_by_index(const Context& context, const OrderWorkspace& workspace,
                        const std::int32_t* indices, std::size_t rows, const TableEntries& entries,
                        unsigned long long* fault_word);

// Sorts by row % sequence.
RowOrder order_by_position(const Context& context, const OrderWorkspace& workspace,
                           std::size_t rows, std::int64_t sequence);

}  // namespace lockstep::cuda
