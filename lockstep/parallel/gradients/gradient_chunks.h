// A global gradient norm that does not depend on how gradients are sharded.
//
// Every block's range of the flat buffer is cut, from its start, into *chunks* of 65536 elements
// (the last one shorter). One operation sums the squares of a chunk, and the sums of chunks are
// added in the order of the flat buffer, in f64. So each worker can sum the chunks it holds and
// share the sums, and the norm has the same bits with one worker, with shards and with parameter
// servers.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/nn/parameters/flat_parameters.h"
#include "lockstep/ops/ops.h"

namespace lockstep::parallel {

inline constexpr std::size_t kChunkElements = 65536;

// The chunks of the flat buffer, in order.
std::vector<nn::FlatRange> gradient_chunks(const nn::FlatParameters& flat);
// The chunks of one range that begins at a chunk, and their number.
std::vector<nn::FlatRange> chunks_of(nn::FlatRange range);
constexpr std::size_t chunk_count(std::size_t elements) {
  return (elements + kChunkElements - 1) / kChunkElements;
}

// The sum of squares of each chunk of `buffer`. `workspace` is f64 on the device of the flat
// buffer; a larger one means fewer waits. Waits for the operations before it.
std::vector<double> sums_of_chunks(Ops& ops, const Tensor& buffer,
                                   std::span<const nn::FlatRange> chunks, const Tensor& workspace);
// The same for a flat buffer whose chunks read() returns; it is called for each once, in order.
std::vector<double> sums_of_chunks(Ops& ops, const std::function<Tensor(nn::FlatRange)>& read,
                                   std::span<const nn::FlatRange> chunks, const Tensor& workspace);

// The root of their sum, added in order. Infinite or NaN if a gradient is.
double norm_of_chunks(std::span<const double> sums);

// Both for a whole flat buffer of gradients.
double chunked_gradient_norm(Ops& ops, const nn::FlatParameters& flat, const Tensor& gradients,
                             const Tensor& workspace);

}  // namespace lockstep::parallel
