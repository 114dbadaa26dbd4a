// Runs of elements within a slice: those of its gradients that will come again.
//
// The gradient of a table of tokens is almost whole long before backward ends: logits add to all of
// it first, the embedding adds to the rows of the batch's tokens last (parallel/ddp/table_rows.h).
// So slices of it are pushed early, and at the end those rows once more. A server updates the other
// rows meanwhile, and sends the slice back; the rows follow by themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/parameters/flat_parameters.h"

namespace lockstep::parallel {

// In order, none empty, none touching another; positions count from the start of the slice.
using Runs = std::vector<nn::FlatRange>;

// The part of these table rows that lies in `slice`. The table starts at element `table` of the
// flat buffer and has `width` elements per row.
Runs runs_of_rows(std::span<const std::int32_t> rows, std::size_t width, std::size_t table,
                  nn::FlatRange slice);
Runs united(const Runs& one, const Runs& other);
// All of so many elements but these.
Runs rest_of(const Runs& runs, std::size_t elements);
std::size_t elements_of(const Runs& runs);

// Copies the runs of a slice, of elements of that size, one behind the other; and back.
void take_runs(const Runs& runs, std::size_t element, std::span<const std::byte> slice,
               std::span<std::byte> values);
void put_runs(const Runs& runs, std::size_t element, std::span<const std::byte> values,
              std::span<std::byte> slice);

// As numbers for a message; and back: Error(kProtocol) for what are no runs of so many elements.
std::vector<std::uint64_t> encode_runs(const Runs& runs);
std::size_t most_encoded(std::size_t elements);  // bytes, of any runs of so many elements
Runs decode_runs(std::span<const std::uint64_t> numbers, std::size_t elements);

}  // namespace lockstep::parallel
