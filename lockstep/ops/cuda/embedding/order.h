// The rows of a batch in the order of the table entries that they belong to.
//
// A list holds for every place the entry, `keys`, and the row, `rows`: entries ascend, and the rows
// of one entry ascend. Rows whose index lies outside the table have the number of entries for their
// key, so they come last.
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

// By indices that lie on the device. One outside [0, entries) goes to `fault_word`.
RowOrder order_by_index(const Context& context, const OrderWorkspace& workspace,
                        const std::int32_t* indices, std::size_t rows, std::int64_t entries,
                        unsigned long long* fault_word);

// By row % sequence.
RowOrder order_by_position(const Context& context, const OrderWorkspace& workspace,
                           std::size_t rows, std::int64_t sequence);

}  // namespace lockstep::cuda
