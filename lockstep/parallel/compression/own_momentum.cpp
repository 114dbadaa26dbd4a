#include "lockstep/parallel/compression/own_momentum.h"

#include "lockstep/parallel/compression/codec_device.h"
#include "lockstep/parallel/compression/kernels/kernels.h"

namespace lockstep::parallel {

float OwnClip::factor(std::span<const float> gradients) {
  if (limit_ == 0) return 1;
  squares_ += compression_kernels().squares(gradients.data(), gradients.size());
  const double norm = std::sqrt(squares_);
  return std::isfinite(norm) && norm > limit_ ? static_cast<float>(limit_ / norm) : 1;
}

OwnMomentum own_momentum(const optim::OptimizerOptions& optimizer) {
  if (optim::has_moments(optimizer)) {
    return {static_cast<float>(optimizer.beta1), static_cast<float>(1 - optimizer.beta1)};
  }
  return {static_cast<float>(optimizer.momentum), 1};
}

optim::OptimizerOptions optimizer_beside(const CompressionOptions& compression,
                                         optim::OptimizerOptions optimizer) {
  if (!takes_own_momentum(compression.compression)) return optimizer;
  optimizer.beta1 = 0;
  optimizer.momentum = 0;
  optimizer.beta2 = 1 - (1 - optimizer.beta2) * std::sqrt(compression.ratio);
  return optimizer;
}

void encode_own(CodecDevice& device, const Codec& codec, OwnMomentum momentum,
                std::span<const float> gradients, const OwnState& state,
                std::span<std::byte> payload, std::span<std::byte> scratch, std::uint64_t seed) {
  if (state.velocity.empty()) {
    codec.encode(gradients, state.residual, payload, scratch, seed);
    return;
  }
  device.average(gradients, state.velocity, momentum);
  codec.encode(state.velocity, state.residual, payload, scratch, seed);
  codec.clear_sent(payload, state.velocity, seed);
}

}  // namespace lockstep::parallel
