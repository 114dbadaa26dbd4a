// How the flat buffer of parameters is cut into slices, and which server has which.
//
// A *slice* is a part of one block's range: what travels at a time, what is updated at a time, and
// what can overtake another. A block of more elements than a slice may have is cut into equal
// slices; going down the flat buffer, each slice falls to the server that has the fewest elements
// so far, so the slices of a block spread over servers and all servers have about as much.
//
// A slice has at most as many elements as asked for, and at most a 256th of the flat buffer (but
// 16384 are never too many): the first one leaves when all of it is there, at the end nothing goes
// on while the last one travels there and back, and in between there must be some for every server.
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
  std::size_t decaying = 0;  // so many elements from its start on are pulled by weight decay
  std::size_t block = 0;
  int server = 0;

  friend bool operator==(const Slice&, const Slice&) = default;
};

// In the order of the flat buffer. With `whole_chunks` slices are cut where chunks are
// (parallel/gradients/gradient_chunks.h), so that their squares can be added up for a norm.
std::vector<Slice> cut_slices(const nn::FlatParameters& flat, double slice_mb, bool whole_chunks,
                              int servers);

// Slices as bytes, for servers, which have no model; and back: Error(kProtocol) for what
// cut_slices() cannot have made for so many servers.
std::string encode_slices(std::span<const Slice> slices);
std::vector<Slice> decode_slices(std::string_view bytes, int servers);

// The most that one slice has.
std::size_t largest_slice(std::span<const Slice> slices);

}  // namespace lockstep::parallel
