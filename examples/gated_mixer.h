// A block of one's own, in one file: a gated mixer in the place of attention.
//
//   mixed = the mean of the norm's rows up to each token     (written here, for f32 on the CPU)
//   gate  = gelu(mixed Wg^T)
//   out   = x + (gate * (norm(x) Wv^T)) Wo^T
//
// make_mixer() is a model of an embedding, some of these layers and a head.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/blocks/embedding.h"
#include "lockstep/nn/blocks/language_head.h"
#include "lockstep/nn/model.h"

namespace lockstep::example {

using nn::Life;

class GatedMixer : public nn::Block {
 public:
  GatedMixer(std::string name, std::int64_t width) : name_(std::move(name)), width_(width) {}

  std::string name() const override { return name_; }
  Shape output(const nn::Setup& setup) const override { return {setup.shape.tokens(), width_}; }

  // Everything that forward and backward need, as shapes.
  nn::BlockSpec spec(const nn::Setup& setup, const Ops& ops) const override {
    const std::int64_t tokens = setup.shape.tokens();
    const Shape stream = output(setup);
    const nn::Initial small = {.mean = 0, .stddev = 0.02};
    nn::BlockSpec spec;
    spec.parameters = {{"gain", {width_}, {.mean = 1, .stddev = 0}, false, ""},
                       {"gate", {width_, width_}, small, true, ""},
                       {"value", {width_, width_}, small, true, ""},
                       {"out", {width_, width_}, small, true, ""}};
    spec.tensors = {{"rstd", DType::kF32, {tokens}, Life::kKept},
                    {"normed", setup.dtype, stream, Life::kRestored},
                    {"mixed", setup.dtype, stream, Life::kRestored},
                    {"gate", setup.dtype, stream, Life::kKept},
                    {"derivative", setup.dtype, stream, Life::kKept},
                    {"value", setup.dtype, stream, Life::kKept},
                    {"product", setup.dtype, stream, Life::kRestored},
                    {"workspace", setup.dtype, stream, Life::kBackward}};
    const LinearShape linear = {tokens, width_, width_, setup.dtype, setup.gradient};
    spec.scratch = std::max(ops.scratch(linear), ops.norm_scratch(tokens, width_));
    const double flops = 3 * 2.0 * static_cast<double>(tokens * width_ * width_);
    spec.forward_flops = flops;
    spec.backward_flops = 2 * flops;
    spec.recompute_flops = setup.recompute == nn::Recompute::kFull ? flops * 2 / 3 : 0;
    return spec;
  }

  void forward(const nn::Pass& pass) override {
    normalise_and_mix(pass);
    pass.ops.run(ops::LinearActivation{.x = pass.tensors[kMixed],
                                       .weight = pass.parameters[kGateWeight],
                                       .bias = {},
                                       .activation = ops::Activation::kGeluTanh,
                                       .y = pass.tensors[kGate],
                                       .derivative = pass.tensors[kDerivative]});
    pass.ops.run(ops::Linear{.x = pass.tensors[kNormed],
                             .weight = pass.parameters[kValueWeight],
                             .bias = {},
                             .residual = {},
                             .y = pass.tensors[kValue]});
    multiply(pass, pass.tensors[kGate], pass.tensors[kValue], pass.tensors[kProduct]);
    if (!ops::is_given(pass.out.x)) return;  // recompute: only what is kept is needed
    pass.ops.run(ops::Linear{.x = pass.tensors[kProduct],
                             .weight = pass.parameters[kOutWeight],
                             .bias = {},
                             .residual = pass.in.x,
                             .y = pass.out.x});
  }

  void restore(const nn::Pass& pass) override {
    normalise_and_mix(pass);
    multiply(pass, pass.tensors[kGate], pass.tensors[kValue], pass.tensors[kProduct]);
  }

  void backward(const nn::Pass& pass) override {
    const Tensor& dproduct = pass.tensors[kWorkspace];
    weight_gradient(pass, pass.dout.x, pass.tensors[kProduct], kOutWeight);
    input_gradient(pass, pass.dout.x, kOutWeight, dproduct, false);
    // Optional: what is not touched any more can be exchanged with other workers from now on.
    pass.finished(kOutWeight);
    // The gradients of gate and value take the places of value and gate.
    const Tensor& dgate = pass.tensors[kValue];
    const Tensor& dvalue = pass.tensors[kGate];
    multiply(pass, dproduct, pass.tensors[kValue], dgate);
    multiply(pass, dgate, pass.tensors[kDerivative], dgate);
    multiply(pass, dproduct, pass.tensors[kGate], dvalue);
    weight_gradient(pass, dgate, pass.tensors[kMixed], kGateWeight);
    weight_gradient(pass, dvalue, pass.tensors[kNormed], kValueWeight);

    const Tensor& dnormed = pass.tensors[kWorkspace];
    input_gradient(pass, dgate, kGateWeight, dnormed, false);
    unmix(pass, dnormed);
    input_gradient(pass, dvalue, kValueWeight, dnormed, true);
    pass.ops.run(ops::NormBackward{.kind = ops::NormKind::kRms,
                                   .dy = dnormed,
                                   .sum = pass.in.x,
                                   .gain = pass.parameters[kGain],
                                   .mean = {},
                                   .rstd = pass.tensors[kRstd],
                                   .dresidual = pass.dout.x,
                                   .dsum = pass.din.x,
                                   .dropout = {},
                                   .dbranch = {},
                                   .dgain = pass.gradients[kGain],
                                   .dbias = {}});
  }

 private:
  // The order of spec().
  enum Parameter : std::size_t { kGain, kGateWeight, kValueWeight, kOutWeight };
  enum Saved : std::size_t {
    kRstd,
    kNormed,
    kMixed,
    kGate,
    kDerivative,
    kValue,
    kProduct,
    kWorkspace
  };

  static void multiply(const nn::Pass& pass, const Tensor& a, const Tensor& b, const Tensor& y) {
    pass.ops.run(ops::Multiply{.a = a, .b = b, .y = y});
  }
  static void weight_gradient(const nn::Pass& pass, const Tensor& dy, const Tensor& x,
                              Parameter weight) {
    pass.ops.run(ops::LinearBackwardWeight{
        .dy = dy, .x = x, .dweight = pass.gradients[weight], .dbias = {}});
  }
  static void input_gradient(const nn::Pass& pass, const Tensor& dy, Parameter weight,
                             const Tensor& dx, bool accumulate) {
    pass.ops.run(ops::LinearBackwardInput{.dy = dy,
                                          .weight = pass.parameters[weight],
                                          .factor = {},
                                          .dx = dx,
                                          .accumulate = accumulate});
  }

  void normalise_and_mix(const nn::Pass& pass) const {
    pass.ops.run(ops::Norm{.kind = ops::NormKind::kRms,
                           .x = pass.in.x,
                           .branch = {},
                           .dropout = {},
                           .sum = {},
                           .gain = pass.parameters[kGain],
                           .bias = {},
                           .y = pass.tensors[kNormed],
                           .mean = {},
                           .rstd = pass.tensors[kRstd]});
    pass.ops.synchronize();  // what follows is no operation of pass.ops
    const auto x = pass.tensors[kNormed].as<const float>();
    const auto y = pass.tensors[kMixed].as<float>();
    for_each_column(pass, [&](std::size_t first, std::size_t stride, std::int64_t tokens) {
      double sum = 0;
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::size_t at = first + static_cast<std::size_t>(t) * stride;
        sum += static_cast<double>(x[at]);
        y[at] = static_cast<float>(sum / static_cast<double>(t + 1));
      }
    });
  }

  // The gradient of the means, in place.
  void unmix(const nn::Pass& pass, const Tensor& gradient) const {
    pass.ops.synchronize();
    const auto values = gradient.as<float>();
    for_each_column(pass, [&](std::size_t first, std::size_t stride, std::int64_t tokens) {
      double sum = 0;
      for (std::int64_t t = tokens; t-- > 0;) {
        float& value = values[first + static_cast<std::size_t>(t) * stride];
        sum += static_cast<double>(value) / static_cast<double>(t + 1);
        value = static_cast<float>(sum);
      }
    });
  }

  template <class F>
  void for_each_column(const nn::Pass& pass, F&& f) const {
    const nn::BatchShape& shape = pass.setup.shape;
    const auto width = static_cast<std::size_t>(width_);
    const auto sequence = static_cast<std::size_t>(shape.sequence);
    for (std::size_t b = 0; b < static_cast<std::size_t>(shape.batch); ++b) {
      for (std::size_t column = 0; column < width; ++column) {
        f(b * sequence * width + column, width, shape.sequence);
      }
    }
  }

  std::string name_;
  std::int64_t width_;
};

struct MixerSizes {
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
  std::int64_t width = 0;
  int layers = 0;
};

inline nn::Model make_mixer(const MixerSizes& sizes) {
  std::vector<std::unique_ptr<nn::Block>> blocks;
  blocks.push_back(std::make_unique<nn::Embedding>(
      "embedding",
      nn::EmbeddingOptions{
          .vocabulary = sizes.vocabulary, .positions = sizes.positions, .hidden = sizes.width}));
  for (int i = 0; i < sizes.layers; ++i) {
    blocks.push_back(std::make_unique<GatedMixer>("mixer." + std::to_string(i), sizes.width));
  }
  blocks.push_back(std::make_unique<nn::LanguageHead>(
      "head", nn::NormOptions{.width = sizes.width},
      nn::ClassifierOptions{
          .hidden = sizes.width, .classes = sizes.vocabulary, .tied_to = "embedding.tokens"}));
  return {"mixer", std::move(blocks)};
}

}  // namespace lockstep::example
