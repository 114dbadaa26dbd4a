// Momentum and clipping for topk, where few elements of a gradient arrive.
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
// The last line matters most. The velocity of an element that was sent takes effect in the update.
// If the worker kept it, it would send the same direction again, against newer gradients.
//
// The velocity is a flat buffer of f32 like the residual, and belongs to a run's state in the same
// way.
//
// Adam's second moment stays with the optimizer, which sees lumps. Over the 1 / (1 - beta2) steps
// that it remembers hardly one of them comes (100 steps of beta2 = 0.99, a lump in 100 steps of a
// ratio of 0.01), and what a lump is divided by is then mostly itself. So it remembers 1 /
// sqrt(ratio) times as many steps.
#pragma once

#include <cmath>
#include <span>
#include <utility>

#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/compression/codec.h"
#include "lockstep/parallel/compression/options.h"

namespace lockstep::parallel {

class CodecDevice;

// Clips one worker's gradients as they leave, some at a time: each by the norm of all that the step
// has shown so far.
class OwnClip {
 public:
  // `most` is the norm that the sum over workers is to have; 0 if there is no such.
  void begin_step(double most, int workers) {
    limit_ = most / std::sqrt(static_cast<double>(workers));
    squares_ = 0;
    begins_ = true;
  }
  // The factor for the next gradients. It is 1 where they are not finite, so that this stays
  // visible.
  float factor(std::span<const float> gradients);

  // For a device that sums squares itself: the norm that this worker's gradients may have, 0 for
  // any; and whether this is the first call of a step, whose sum begins at 0.
  double limit() const { return limit_; }
  bool take_beginning() { return std::exchange(begins_, false); }

 private:
  double limit_ = 0;
  double squares_ = 0;
  bool begins_ = true;
};

struct OwnMomentum {
  float keep = 0;
  float take = 1;
  OwnClip* clip = nullptr;  // where gradients have not been clipped before
};

// Whether workers apply the momentum before compression.
constexpr bool takes_own_momentum(Compression compression) {
  return compression == Compression::kTopk;
}

// The settings that workers apply themselves. The optimizer applies the rest; with other codecs it
// applies all.
OwnMomentum own_momentum(const optim::OptimizerOptions& optimizer);
optim::OptimizerOptions optimizer_beside(const CompressionOptions& compression,
                                         optim::OptimizerOptions optimizer);

// What a worker has of each of its gradients' elements. The velocity may be empty: then gradients
// are encoded as they are.
struct OwnState {
  std::span<float> residual;
  std::span<float> velocity;
};

// The payload of a worker's gradients, as above; the arguments are those of Codec::encode(). The
// codec is one of the device; called in one of its tasks.
void encode_own(CodecDevice& device, const Codec& codec, OwnMomentum momentum,
                std::span<const float> gradients, const OwnState& state,
                std::span<std::byte> payload, std::span<std::byte> scratch, std::uint64_t seed);

}  // namespace lockstep::parallel
