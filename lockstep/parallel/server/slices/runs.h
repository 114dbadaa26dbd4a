// Runs of elements within a piece: those of its gradients that will come again.
//
// The gradient of a table of tokens is almost whole long before backward ends: logits add to all of
// it first, the embedding adds to the rows of the batch's tokens last (parallel/ddp/table_rows.h).
// So pieces of it are pushed early, and at the end those rows once more. A server updates the other
// rows meanwhile, and sends the piece back; the rows follow by themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/parameters/flat_parameters.h"

namespace lockstep::parallel {

// In order, none empty, none touching another; positions count from the start of the piece.
using Runs = std::vector<nn::FlatRange>;

// Of a piece that covers `piece` of the row: what lies there of the rows of a table, `width`
// elements each, whose first one is `table` in the row.
Runs runs_of_rows(std::span<const std::int32_t> rows, std::size_t width, std::size_t table,
                  nn::FlatRange piece);
Runs united(const Runs& one, const Runs& other);
// All of so many elements but these.
Runs rest_of(const Runs& runs, std::size_t elements);
std::size_t elements_of(const Runs& runs);

// Copies the runs of a piece, of elements of that size, one behind the other; and back.
void take_runs(const Runs& runs, std::size_t element, std::span<const std::byte> piece,
               std::span<std::byte> values);
void put_runs(const Runs& runs, std::size_t element, std::span<const std::byte> values,
              std::span<std::byte> piece);

// As numbers for a message; and back: Error(kProtocol) for what are no runs of so many elements.
std::vector<std::uint64_t> encode_runs(const Runs& runs);
std::size_t most_encoded(std::size_t elements);  // bytes, of any runs of so many elements
Runs decode_runs(std::span<const std::uint64_t> numbers, std::size_t elements);

}  // namespace lockstep::parallel
