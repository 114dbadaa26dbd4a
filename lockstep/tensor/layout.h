// Places many requests for memory in one block, by lifetime.
//
// The work of a rank is a static schedule of numbered steps. A *request* asks for bytes that are
// needed from its first step to its last, both included; its *lifetime* is that range. Two requests
// may share bytes exactly when their lifetimes do not overlap:
//
//   offset
//     |   +--------- saved ---------+
//     |   +-------------------------+
//     |   +-- a --+ +-- b --+ +- c -+
//     +---+-------+-+-------+-+-----+---> step
//
// Offsets and the padded size of each request are multiples of 64 bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct Request {
  std::string name;   // for errors: "layer.3.attention"
  std::string group;  // for sums: "activations"
  std::size_t bytes = 0;
  int first_step = 0;
  int last_step = 0;
};

struct Layout {
  static constexpr std::size_t kAlignment = 64;

  std::vector<std::size_t> offsets;  // one per request
  std::size_t bytes = 0;             // the end of the last
  std::size_t lower_bound = 0;       // the most bytes alive at one step: no layout is smaller
  int peak_step = 0;                 // the first step with that many bytes alive
};

// The padded size of a request: its bytes rounded up to the alignment.
constexpr std::size_t padded_bytes(const Request& request) {
  return (request.bytes + Layout::kAlignment - 1) / Layout::kAlignment * Layout::kAlignment;
}

// Depends on nothing but the requests. Where lifetimes are nested (of any two that meet, one lies
// in the other) the layout has lower_bound bytes; else mostly few per cent more. Takes time of the
// order of n log n for n requests. Throws Error(kInvalidArgument) for a lifetime that ends before
// it begins, and for more bytes in all than can be counted.
Layout plan_layout(std::span<const Request> requests);

// Like plan_layout(), but without offsets, which take nearly all the time; `bytes` is lower_bound.
Layout bound_layout(std::span<const Request> requests);

struct GroupBytes {
  std::string group;
  std::size_t bytes = 0;
};

// The padded bytes of each group at a step. Groups are in order of first appearance, including
// empty ones. At the layout's peak_step they sum to its lower_bound.
std::vector<GroupBytes> bytes_by_group(std::span<const Request> requests, int step);

}  // namespace lockstep
