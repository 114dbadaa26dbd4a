#include "lockstep/nn/parts/feed_forward.h"

namespace lockstep::nn {

FeedForwardPart::FeedForwardPart(Place& next, const std::string& name,
                                 const FeedForwardOptions& options)
    : Part(next, name, 0, kTensors),
      options_(options),
      up_(next, name + ".up",
          {.in = options.hidden,
           .out = options.width,
           .bias = options.biases,
           .deviation = options.deviation}),
      down_(next, name + ".down",
            {.in = options.width,
             .out = options.hidden,
             .bias = options.biases,
             .deviation = options.down_deviation}) {}

bool FeedForwardPart::keeps_z(const Pass& pass) {
  return pass.setup.recompute == Recompute::kSelective;
}

void FeedForwardPart::declare(Declaration& declaration, std::int64_t rows, bool again) const {
  const bool selective = declaration.setup().recompute == Recompute::kSelective;
  const Shape wide = {rows, options_.width};
  up_.declare(declaration, rows);
  down_.declare(declaration, rows, again);
  declaration.activation(named("z"), selective ? wide : Shape{0}, Life::kKept);
  declaration.activation(named("active"), wide, selective ? Life::kForward : Life::kKept);
  declaration.activation(named("derivative"), wide, selective ? Life::kBackward : Life::kKept);
}

void FeedForwardPart::forward_up(const Pass& pass, const Tensor& x) const {
  const bool keeps = pass.training && keeps_z(pass);
  // Where forward is run anew, only then.
  const bool later = pass.setup.recompute == Recompute::kFull && ops::is_given(pass.out.x);
  const bool derives = pass.training && !keeps && !later;
  up_.forward(pass, x, options_.activation, tensor(pass, kActive),
              derives ? tensor(pass, kDerivative) : Tensor(), keeps ? tensor(pass, kZ) : Tensor());
}

void FeedForwardPart::forward_down(const Pass& pass, const Tensor& y,
                                   const Tensor& residual) const {
  down_.forward(pass, tensor(pass, kActive), y, residual);
}

void FeedForwardPart::restore(const Pass& pass) const {
  const Tensor& z = tensor(pass, kZ);
  pass.ops.run(ops::Activate{
      .activation = options_.activation, .z = z, .y = z, .derivative = tensor(pass, kDerivative)});
}

Tensor FeedForwardPart::backward_down(const Pass& pass, const Tensor& dy) const {
  const Tensor& active = tensor(pass, keeps_z(pass) ? kZ : kActive);
  down_.backward(pass, {.dy = dy, .x = active, .dx = active, .factor = tensor(pass, kDerivative)});
  return active;
}

Tensor FeedForwardPart::spent(const Pass& pass) const { return tensor(pass, kDerivative); }

}  // namespace lockstep::nn
