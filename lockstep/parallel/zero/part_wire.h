// The encoding of a part of parameters or gradients between workers: unchanged, or in blocks of
// integers with a scale each (compression/dense_codecs.h), which all workers decode to the same
// bits.
//
// Parts and payloads lie on the device of the CodecDevice (compression/codec_device.h), where no
// part is ever completely in f32. Functions return when their work is done.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "lockstep/comm/call.h"
#include "lockstep/parallel/compression/codec_device.h"
#include "lockstep/parallel/strategy/options.h"

namespace lockstep::parallel {

class PartWire {
 public:
  // Parts are of `dtype`: f32, bf16 or f16. The device must outlive it.
  PartWire(Quantization quantization, DType dtype, CodecDevice& device = cpu_codec_device());

  bool is_exact() const { return !format_; }
  // Of a payload.
  std::size_t bytes(std::size_t elements) const;

  void encode(ConstData part, std::span<std::byte> payload) const;
  void decode(std::span<const std::byte> payload, Data part) const;

  // Of payloads that are not exact, one after another: out = their sum in order, in f32, rounded
  // once. Instead of payload `own`, the unencoded part itself is added.
  void sum(std::span<const std::byte> payloads, std::size_t own, ConstData own_part,
           Data out) const;

 private:
  DType dtype_;
  std::optional<Compression> format_;  // nothing: exact
  CodecDevice& device_;
};

}  // namespace lockstep::parallel
