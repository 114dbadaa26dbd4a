// The description of the parameters for servers, which have no model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/compression/options.h"
#include "lockstep/parallel/server/slices/message.h"
#include "lockstep/parallel/server/slices/slices.h"
#include "lockstep/parallel/strategy/server_options.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::parallel {

struct ServedLayout {
  std::vector<Slice> slices;       // of all servers
  DType parameter = DType::kF32;   // the type of parameters on workers
  DType gradient = DType::kF32;    // the type of gradients
  CompressionOptions compression;  // of pushed gradients
  optim::OptimizerOptions optimizer;

  // Whether an update needs the global norm first: to clip gradients, or to detect overflow with a
  // loss scale.
  bool needs_norm() const { return optimizer.max_grad_norm > 0 || parameter == DType::kF16; }
  bool has(StateKind kind) const;
};

// Decoding throws Error(kProtocol) for invalid bytes.
std::string encode_layout(const ServedLayout& layout);
ServedLayout decode_layout(std::span<const std::byte> bytes, int servers);

// Layouts are equal if their hashes are.
std::string hash_of(const ServedLayout& layout);

// The priority of messages with a slice, in both directions.
Priority priority_of(const Slice& slice, SliceSchedule schedule);

// The memory of a server: the states of its slices, and buffers for received and sent data.
std::size_t server_bytes(const ServedLayout& layout, const ServerOptions& options, int server,
                         int workers);

}  // namespace lockstep::parallel
