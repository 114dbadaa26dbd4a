// The encoding of a part of parameters or gradients between workers: unchanged, or in blocks of
// integers with a scale each (compression/dense_codecs.h), which all workers decode to the same
// bits.
//
// It works in chunks that fit into the cache, so no shard is ever completely in f32.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "lockstep/comm/call.h"
#include "lockstep/parallel/compression/codec.h"
#include "lockstep/parallel/strategy/options.h"

namespace lockstep::parallel {

class PartWire {
 public:
  // Parts are of `dtype`: f32, bf16 or f16.
  PartWire(Quantization quantization, DType dtype);

  bool is_exact() const { return codec_ == nullptr; }
  // Of a payload.
  std::size_t bytes(std::size_t elements) const;

  void encode(ConstData part, std::span<std::byte> payload) const;
  void decode(std::span<const std::byte> payload, Data part) const;

  // out = the sum of all payloads in order, in f32, rounded once. Instead of payload `own`, the
  // unencoded part itself is added.
  void sum(std::span<const std::span<const std::byte>> payloads, std::size_t own,
           ConstData own_part, Data out) const;

 private:
  DType dtype_;
  std::unique_ptr<Codec> codec_;  // null: exact
};

}  // namespace lockstep::parallel
