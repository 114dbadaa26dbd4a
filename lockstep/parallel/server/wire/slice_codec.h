// The compression of slices on a worker: buffers for payloads, and residuals.
//
//   payloads   a place for each slice: its gradients when it leaves, its parameters when it comes
//              back (where these are in 16 bits)
//   residual   f32, one for each element, where the codec needs error feedback
//   velocity   the same, with topk (parallel/compression/own_momentum.h)
//   values     of the largest slice, where gradients are not f32
//   scratch    of the codec, for the largest slice
//
// One thread at a time, and a slice that is out (parallel/server/worker/worker_link.h) is the
// link's.
#pragma once

#include <span>
#include <vector>

#include "lockstep/parallel/server/slices/wire_format.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::parallel {

class SliceCodec {
 public:
  // The layout must outlive it. Residual and velocity start at zero.
  explicit SliceCodec(const ServedLayout& layout);
  // The exact bytes it allocates.
  static std::size_t bytes(const ServedLayout& layout);

  const WireFormat& format() const { return format_; }

  // Encodes a slice's gradients; the payload is valid until a server has received it. Uncompressed
  // gradients are returned unchanged. The encoding error goes to the residual.
  std::span<const std::byte> encode(std::size_t slice, const Tensor& gradients, std::int64_t step);

  // The memory to receive the parameters of a slice into, and the conversion after that.
  std::span<std::byte> receiving(std::size_t slice, const Tensor& parameters) const;
  void landed(std::size_t slice, const Tensor& parameters) const;
  // Rounds a slice's parameters as a server would send them.
  void round(std::size_t slice, const Tensor& parameters);

  // The residual of all slices, in the order of the flat buffer; empty if the codec needs none.
  std::span<float> residual() const {
    return {reinterpret_cast<float*>(residual_.data()), residual_.bytes() / sizeof(float)};
  }
  std::span<float> velocity() const {
    return {reinterpret_cast<float*>(velocity_.data()), velocity_.bytes() / sizeof(float)};
  }

 private:
  std::span<std::byte> payload(std::size_t slice, std::size_t bytes) const;

  const ServedLayout& layout_;
  WireFormat format_;
  std::vector<std::size_t> offset_;  // of each slice's payload
  Buffer payloads_;
  Buffer values_;
  Buffer scratch_;
  Buffer residual_;
  Buffer velocity_;
};

}  // namespace lockstep::parallel
