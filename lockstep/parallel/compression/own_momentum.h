// Momentum where few elements of a gradient arrive: topk.
//
// An optimizer with momentum (Adam's moment, SGD's velocity) goes by an average of the last
// gradients. With error feedback an element arrives once in a while, as the sum of all that was
// kept back: an average of such lumps moves it for many steps by what is long known, and what it
// learns from its next lump comes late. So each worker takes the average before, of its own
// gradients, and the optimizer does without (Deep Gradient Compression, Lin et al. 2018):
//
//   velocity = keep * velocity + take * gradient
//   payload  = what the codec makes of velocity + residual
//   velocity = 0, where the payload says something
//
// The last line is what matters most. What made an element large has been sent and will be acted
// upon; a velocity that was kept would go on to send it, against gradients that know better.
//
// The velocity is a row of f32 like the residual, and belongs to a run's state in the same way.
#pragma once

#include <span>

#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/compression/codec.h"
#include "lockstep/parallel/compression/options.h"

namespace lockstep::parallel {

struct OwnMomentum {
  float keep = 0;
  float take = 1;
};

// Whether workers that compress take the momentum themselves.
constexpr bool takes_own_momentum(Compression compression) {
  return compression == Compression::kTopk;
}

// What they take, and the optimizer without it.
OwnMomentum own_momentum(const optim::OptimizerOptions& optimizer);
optim::OptimizerOptions without_momentum(optim::OptimizerOptions optimizer);

// What a worker has of each of its gradients' elements. The velocity may be empty: then gradients
// are encoded as they are.
struct OwnRows {
  std::span<float> residual;
  std::span<float> velocity;
};

// The payload of a worker's gradients, as above; the arguments are those of Codec::encode().
void encode_own(const Codec& codec, OwnMomentum momentum, std::span<const float> gradients,
                const OwnRows& rows, std::span<std::byte> payload, std::span<std::byte> scratch,
                std::uint64_t seed);

}  // namespace lockstep::parallel
