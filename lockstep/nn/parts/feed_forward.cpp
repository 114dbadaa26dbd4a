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
           .stddev = options.stddev}),
      down_(next, name + ".down",
            {.in = options.width,
             .out = options.hidden,
             .bias = options.biases,
             .stddev = options.down_stddev}) {}

bool FeedForwardPart::keeps_z(const Pass& pass) {
  return pass.setup.recompute == Recompute::kSelective;
}

bool FeedForwardPart::from_input(const Pass& pass) const {
  return pass.ops.differentiates_from_input(options_.activation);
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
  // Where forward is run again, only then.
  const bool later = pass.setup.recompute == Recompute::kFull && ops::is_given(pass.out.x);
  const bool derives = pass.training && !keeps && !later;
  const Tensor derivative = derives ? tensor(pass, kDerivative) : Tensor();
  const Tensor z = keeps ? tensor(pass, kZ) : Tensor();
  const bool z_instead = derives && from_input(pass);
  up_.forward(pass, x, options_.activation, tensor(pass, kActive),
              z_instead ? Tensor() : derivative, z_instead ? derivative : z);
}

void FeedForwardPart::forward_down(const Pass& pass, const Tensor& y,
                                   const Tensor& residual) const {
  down_.forward(pass, tensor(pass, kActive), y, residual);
}

void FeedForwardPart::restore(const Pass& pass) const {
  const Tensor& z = tensor(pass, kZ);
  if (from_input(pass)) {
    pass.ops.run(
        ops::Activate{.activation = options_.activation, .z = z, .y = tensor(pass, kDerivative)});
    return;
  }
  pass.ops.run(ops::Activate{
      .activation = options_.activation, .z = z, .y = z, .derivative = tensor(pass, kDerivative)});
}

Tensor FeedForwardPart::backward_down(const Pass& pass, const Tensor& dy) const {
  if (from_input(pass)) {
    const Tensor& y = tensor(pass, keeps_z(pass) ? kDerivative : kActive);
    down_.backward(pass, {.dy = dy,
                          .x = y,
                          .dx = y,
                          .activation = options_.activation,
                          .z = tensor(pass, keeps_z(pass) ? kZ : kDerivative)});
    return y;
  }
  const Tensor& active = tensor(pass, keeps_z(pass) ? kZ : kActive);
  down_.backward(pass, {.dy = dy, .x = active, .dx = active, .factor = tensor(pass, kDerivative)});
  return active;
}

Tensor FeedForwardPart::spent(const Pass& pass) const {
  return tensor(pass, from_input(pass) && keeps_z(pass) ? kZ : kDerivative);
}

}  // namespace lockstep::nn
