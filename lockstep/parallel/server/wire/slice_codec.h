// A worker's side of slices that travel compressed: where their payloads lie, and what of its
// gradients has not been sent yet.
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
  // The layout outlives it. Residual and velocity are zero.
  explicit SliceCodec(const ServedLayout& layout);
  // What it takes, to the byte.
  static std::size_t bytes(const ServedLayout& layout);

  const WireFormat& format() const { return format_; }

  // The payload of a slice's gradients, which stays there until a server has taken it: the
  // gradients themselves where they travel as they are. What it does not say goes to the residual.
  std::span<const std::byte> encode(std::size_t slice, const Tensor& gradients, std::int64_t step);

  // Where the parameters of a slice are received, and what to do when they are there.
  std::span<std::byte> receiving(std::size_t slice, const Tensor& parameters) const;
  void landed(std::size_t slice, const Tensor& parameters) const;
  // Makes a slice's parameters what a server would send of them.
  void round(std::size_t slice, const Tensor& parameters);

  // Of all slices, in the order of the flat buffer; empty where the codec needs none.
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
