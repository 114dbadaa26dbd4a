// The bias of a self-attention's scores by the distance of key and query (ops/relative_bias.h).
//
// All layers of a stack have one table. It is the parameter of a small block before them
// (nn/blocks/bias_table.h), to which theirs are tied, so that a worker or a stage that needs it
// does not need a whole layer besides. Its gradient is the sum over the layers.
//
// The ranks of a tensor group divide the table by heads. Those of a context group that attend by
// heads read their heads of it.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/parts/attention_options.h"
#include "lockstep/nn/parts/declaration.h"
#include "lockstep/nn/parts/part.h"

namespace lockstep::nn {

struct BiasTableOptions {
  ops::RelativeBuckets buckets;
  std::int64_t heads = 0;
  double stddev = 0.02;  // at first
  TensorGroup tensor = {};
};

// Declares what this rank has of the table.
void declare_bias_table(Declaration& declaration, std::string name,
                        const BiasTableOptions& options);

class RelativeBiasPart : public Part {
 public:
  RelativeBiasPart(Place& next, const std::string& name, const AttentionOptions& options)
      : Part(next, name, 1, kTensors), options_(options) {}

  void declare(Declaration& declaration) const;

  // Makes the bias of this rank's heads, which is kept.
  void forward(const Pass& pass) const;
  const Tensor& bias(const Pass& pass) const { return tensor(pass, kBias); }
  // The gradient of the bias is written there, and added to the table's.
  const Tensor& dbias(const Pass& pass) const { return tensor(pass, kDBias); }
  void backward(const Pass& pass) const;

 private:
  // The order of the spec.
  enum Parameter : std::size_t { kTable };
  enum Saved : std::size_t { kBias, kDBias, kTensors };

  // Of the rank's part of the table.
  Extent heads(const Setup& setup) const;

  AttentionOptions options_;
};

}  // namespace lockstep::nn
