#include "lockstep/nn/parts/swiglu.h"

namespace lockstep::nn {

SwiGluPart::SwiGluPart(Place& next, const std::string& name, const SwiGluOptions& options)
    : Part(next, name, 0, kTensors),
      options_(options),
      gate_up_(next, name + ".gate_up",
               {.in = options.hidden,
                .out = 2 * options.width,
                .bias = options.biases,
                .stddev = options.stddev,
                .quantized = true,
                .divided = Divided::kOutputs,
                .segments = {options.width, options.width},
                .tensor = options.tensor}),
      down_(next, name + ".down",
            {.in = options.width,
             .out = options.hidden,
             .bias = options.biases,
             .stddev = options.down_stddev,
             .quantized = true,
             .divided = Divided::kInputs,
             .tensor = options.tensor}) {}

void SwiGluPart::declare(Declaration& declaration, std::int64_t rows, bool again) const {
  declaration.activation(named("packed"), {rows, gate_up_.out()}, Life::kKept);
  declaration.activation(named("active"), {rows, down_.in()}, Life::kRestored);
  gate_up_.declare(declaration, rows);
  down_.declare(declaration, rows, again);
}

void SwiGluPart::forward_up(const Pass& pass, const Tensor& x) const {
  gate_up_.forward(pass, x, tensor(pass, kGateUp));
  restore(pass);
}

void SwiGluPart::forward_down(const Pass& pass, const Tensor& y, const Tensor& residual) const {
  down_.forward(pass, tensor(pass, kActive), y, residual);
}

void SwiGluPart::restore(const Pass& pass) const {
  pass.ops.run(ops::SwiGlu{
      .gate_up = tensor(pass, kGateUp), .y = tensor(pass, kActive), .gate = options_.gate});
}

Tensor SwiGluPart::backward_down(const Pass& pass, const Tensor& dy) const {
  const Tensor& gate_up = tensor(pass, kGateUp);
  const Tensor& active = tensor(pass, kActive);
  down_.backward(pass, {.dy = dy, .x = active, .dx = active});
  pass.ops.run(ops::SwiGluBackward{
      .gate_up = gate_up, .dy = active, .dgate_up = gate_up, .gate = options_.gate});
  return gate_up;
}

Tensor SwiGluPart::spent(const Pass& pass) const { return tensor(pass, kGateUp); }

}  // namespace lockstep::nn
