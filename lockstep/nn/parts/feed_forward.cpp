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
           .stddev = options.stddev,
           .quantized = true,
           .divided = Divided::kOutputs,
           .tensor = options.tensor}),
      down_(next, name + ".down",
            {.in = options.width,
             .out = options.hidden,
             .bias = options.biases,
             .stddev = options.down_stddev,
             .quantized = true,
             .divided = Divided::kInputs,
             .tensor = options.tensor}) {}

bool FeedForwardPart::keeps_z(const Setup& setup) const {
  return setup.recompute == Recompute::kSelective || up_.trains_in_fp8(setup);
}

bool FeedForwardPart::from_input(const Pass& pass) const {
  return pass.ops.differentiates_from_input(options_.activation);
}

void FeedForwardPart::declare(Declaration& declaration, std::int64_t rows, bool again) const {
  const bool keeps = keeps_z(declaration.setup());
  const Shape wide = {rows, up_.out()};
  declaration.activation(named("z"), keeps ? wide : Shape{0}, Life::kKept);
  declaration.activation(named("active"), wide, keeps ? Life::kForward : Life::kKept);
  declaration.activation(named("derivative"), wide, keeps ? Life::kBackward : Life::kKept);
  up_.declare(declaration, rows);
  down_.declare(declaration, rows, again);
}

void FeedForwardPart::forward_up(const Pass& pass, const Tensor& x) const {
  if (up_.is_in_fp8(pass)) return up_.forward(pass, x, tensor(pass, kZ));
  const bool keeps = pass.training && keeps_z(pass.setup);
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
  if (down_.is_in_fp8(pass)) {
    down_.forward_of_activated(pass, options_.activation, tensor(pass, kZ), y, residual);
    return;
  }
  down_.forward(pass, tensor(pass, kActive), y, residual);
}

void FeedForwardPart::restore(const Pass& pass) const {
  if (down_.is_in_fp8(pass)) return;
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
  if (down_.is_in_fp8(pass)) {
    const Tensor& dactive = tensor(pass, kDerivative);
    down_.backward(pass, {.dy = dy,
                          .x = {},
                          .dx = dactive,
                          .activation = options_.activation,
                          .x_of = tensor(pass, kZ)});
    return dactive;
  }
  const bool keeps = keeps_z(pass.setup);
  if (from_input(pass)) {
    const Tensor& y = tensor(pass, keeps ? kDerivative : kActive);
    down_.backward(pass, {.dy = dy,
                          .x = y,
                          .dx = y,
                          .activation = options_.activation,
                          .z = tensor(pass, keeps ? kZ : kDerivative)});
    return y;
  }
  const Tensor& active = tensor(pass, keeps ? kZ : kActive);
  down_.backward(pass, {.dy = dy, .x = active, .dx = active, .factor = tensor(pass, kDerivative)});
  return active;
}

void FeedForwardPart::backward_up(const Pass& pass, LinearPart::Backward arguments) const {
  if (up_.is_in_fp8(pass)) {
    arguments.activation = options_.activation;
    arguments.dy_at = tensor(pass, kZ);
  }
  up_.backward(pass, arguments);
}

Tensor FeedForwardPart::spent(const Pass& pass) const {
  const bool z = up_.is_in_fp8(pass) || (from_input(pass) && keeps_z(pass.setup));
  return tensor(pass, z ? kZ : kDerivative);
}

}  // namespace lockstep::nn
