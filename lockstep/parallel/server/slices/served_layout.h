// What servers, which have no model, are told of the parameters they hold.
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
  DType parameter = DType::kF32;   // what workers compute with
  DType gradient = DType::kF32;    // what they compute
  CompressionOptions compression;  // of what they push
  optim::OptimizerOptions optimizer;

  // Whether an update needs the norm of all gradients first: to clip them, or to see whether one is
  // infinite where losses are scaled.
  bool needs_norm() const { return optimizer.max_grad_norm > 0 || parameter == DType::kF16; }
  bool has(StateKind kind) const;
};

// Error(kProtocol) for what makes no sense.
std::string encode_layout(const ServedLayout& layout);
ServedLayout decode_layout(std::span<const std::byte> bytes, int servers);

// Two layouts are the same where their hashes are.
std::string hash_of(const ServedLayout& layout);

// Of messages with a slice, either way.
Priority priority_of(const Slice& slice, SliceSchedule schedule);

// What a server takes: its slices' states, room for gradients, and room for what is sent.
std::size_t server_bytes(const ServedLayout& layout, const ServerOptions& options, int server,
                         int workers);

}  // namespace lockstep::parallel
