// A linear model in one block: y = weight x + bias of the batch's inputs, and the squared error to
// its outputs. Its sequences have length 1.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/parts/linear.h"

namespace lockstep::nn {

class LinearRegression : public Block {
 public:
  LinearRegression(std::string name, std::int64_t features);

  std::string name() const override { return name_; }
  Shape output(const Setup&) const override { return {0}; }
  // Throws Error(kInvalidArgument) for sequences of more than one row.
  std::int64_t features() const override { return features_; }
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass&) override {}
  void backward(const Pass& pass) override;

 private:
  // The order of the spec.
  enum Saved : std::size_t { kInputs, kOutputs, kPredicted, kTensors };

  // The inputs, and the outputs, in the compute type.
  Tensor inputs(const Pass& pass) const;
  Tensor outputs(const Pass& pass) const;

  std::string name_;
  std::int64_t features_;
  Place next_;
  LinearPart linear_;
};

}  // namespace lockstep::nn
