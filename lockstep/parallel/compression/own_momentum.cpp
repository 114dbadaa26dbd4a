#include "lockstep/parallel/compression/own_momentum.h"

#include "lockstep/parallel/compression/kernels.h"

namespace lockstep::parallel {

OwnMomentum own_momentum(const optim::OptimizerOptions& optimizer) {
  if (optim::has_moments(optimizer)) {
    return {static_cast<float>(optimizer.beta1), static_cast<float>(1 - optimizer.beta1)};
  }
  return {static_cast<float>(optimizer.momentum), 1};
}

optim::OptimizerOptions without_momentum(optim::OptimizerOptions optimizer) {
  optimizer.beta1 = 0;
  optimizer.momentum = 0;
  return optimizer;
}

void encode_own(const Codec& codec, OwnMomentum momentum, std::span<const float> gradients,
                const OwnRows& rows, std::span<std::byte> payload, std::span<std::byte> scratch,
                std::uint64_t seed) {
  if (rows.velocity.empty()) {
    codec.encode(gradients, rows.residual, payload, scratch, seed);
    return;
  }
  compression_kernels().average(gradients.data(), rows.velocity.data(), momentum.keep,
                                momentum.take, gradients.size());
  codec.encode(rows.velocity, rows.residual, payload, scratch, seed);
  codec.clear_sent(payload, rows.velocity, seed);
}

}  // namespace lockstep::parallel
