// Runs of elements in a slice whose gradients are sent a second time.
//
// Most of the gradient of a tied token embedding is final long before backward ends: logits add to
// all rows first, the embedding adds to the rows of the batch's tokens last
// (parallel/ddp/table_rows.h). So its slices are pushed early, and those rows again at the end.
// Meanwhile a server updates the other rows and sends the slice back; the updated rows follow
// separately.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/parameters/flat_parameters.h"

namespace lockstep::parallel {

// Sorted, not empty, not adjacent; positions are relative to the start of the slice.
using Runs = std::vector<nn::FlatRange>;

// The part of these table rows that lies in `slice`. The table starts at element `table` of the
// flat buffer and has `width` elements per row.
Runs runs_of_rows(std::span<const std::int32_t> rows, std::size_t width, std::size_t table,
                  nn::FlatRange slice);
Runs united(const Runs& one, const Runs& other);
// The complement of the runs in `elements` elements.
Runs rest_of(const Runs& runs, std::size_t elements);
std::size_t elements_of(const Runs& runs);

// Copies the runs of a slice into contiguous memory, and back. `element` is the size of an element.
void take_runs(const Runs& runs, std::size_t element, std::span<const std::byte> slice,
               std::span<std::byte> values);
void put_runs(const Runs& runs, std::size_t element, std::span<const std::byte> values,
              std::span<std::byte> slice);

// Encodes runs for a message, and decodes them. Throws Error(kProtocol) for runs that do not fit
// into `elements` elements.
std::vector<std::uint64_t> encode_runs(const Runs& runs);
std::size_t most_encoded(
    std::size_t elements);  // the most bytes of encoded runs of `elements` elements
Runs decode_runs(std::span<const std::uint64_t> numbers, std::size_t elements);

}  // namespace lockstep::parallel
