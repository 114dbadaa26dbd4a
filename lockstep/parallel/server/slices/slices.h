// Divides the flat buffer of parameters into slices and assigns them to servers.
//
// A *slice* is a part of one block's range: the unit of transfers, updates and priorities. A block
// that is larger than a slice is cut into equal slices. In the order of the flat buffer, each slice
// is assigned to the server with the fewest elements so far, so the slices of a block spread over
// servers and all servers have about the same load.
//
// A slice has at most the requested size, and at most 1/256 of the flat buffer (but at least 16384
// elements are allowed). Small slices keep the first wait and the final round trip short, and give
// every server work.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/nn/parameters/flat_parameters.h"

namespace lockstep::parallel {

struct Slice {
  nn::FlatRange range;       // in the flat buffer; its ends are multiples of 32 elements
  std::size_t decaying = 0;  // how many elements from its start have weight decay
  std::size_t block = 0;
  int server = 0;

  friend bool operator==(const Slice&, const Slice&) = default;
};

// In the order of the flat buffer. With `whole_chunks`, slices end at the boundaries of chunks
// (parallel/gradients/gradient_chunks.h), so that a server can sum their squares for a norm.
std::vector<Slice> cut_slices(const nn::FlatParameters& flat, double slice_mb, bool whole_chunks,
                              int servers);

// Encodes slices for servers, and decodes them. Decoding throws Error(kProtocol) for slices that
// cut_slices() cannot have made.
std::string encode_slices(std::span<const Slice> slices);
std::vector<Slice> decode_slices(std::string_view bytes, int servers);

// The elements of the largest slice.
std::size_t largest_slice(std::span<const Slice> slices);

}  // namespace lockstep::parallel
