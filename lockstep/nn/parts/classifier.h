// Logits and their cross-entropy, a chunk of rows at a time: neither all logits nor probabilities
// are ever stored. In a chunk, logits are computed, replaced by their gradient and used by the
// products that need it. The last chunk completes the gradient of the weight in parts, which can be
// reduced while the rest is computed.
//
// The weight is [classes, hidden], its own or tied to an embedding's.
//
// The ranks of a tensor group divide the classes (nn/tensor_shard.h). Each computes its own logits
// and three numbers for every row (ops::LogitStatistics), which all ranks gather: logits stay where
// they are. dx is summed over the ranks. Where they divide tokens, x is gathered first, and each
// rank gets its tokens of the sum.
#pragma once

#include <cstddef>

#include "lockstep/nn/parts/declaration.h"
#include "lockstep/nn/parts/part.h"

namespace lockstep::nn {

inline constexpr std::int64_t kLogitBytes = 32 << 20;
// On a GPU, whose products are only fast when they are large.
inline constexpr std::int64_t kLogitBytesOnGpu = 512 << 20;

struct ClassifierOptions {
  std::int64_t hidden = 0;
  std::int64_t classes = 0;
  std::string tied_to;  // the full name of the weight's owner; empty: its own
  bool bias = false;
  double stddev = 0.02;  // of its own weight at first
  std::int64_t chunk_bytes = kLogitBytes;
  TensorGroup tensor = {};
  double softcap = 0;  // of the logits; 0: none
  double scale = 1;    // x is multiplied by it first (T5)
};

// The rows of logits in a chunk: about `chunk_bytes`, at least kLeastRows, of equal sizes.
inline constexpr std::int64_t kLeastRows = 64;
std::int64_t rows_per_chunk(std::int64_t rows, std::int64_t classes, DType dtype,
                            std::int64_t chunk_bytes);

// About the number of classes in a part of the gradient; parts have equal sizes.
inline constexpr std::int64_t kPartClasses = 4096;
std::int64_t classes_per_part(std::int64_t classes);

class ClassifierPart : public Part {
 public:
  ClassifierPart(Place& next, std::string name, const ClassifierOptions& options)
      : Part(next, std::move(name), 2, kTensors), options_(options) {}

  std::int64_t classes() const { return options_.classes; }
  void declare(Declaration& declaration) const;

  // Losses and logits of x, whichever of pass.losses (with targets) and pass.logits are asked for.
  // x is scaled in place.
  void forward(const Pass& pass, const Tensor& targets, const Tensor& x) const;
  // Losses, gradients of the parameters, and dx, which takes the place of x.
  void backward(const Pass& pass, const Tensor& targets, const Tensor& x) const;

 private:
  bool is_divided() const { return options_.tensor.size > 1; }
  Extent own_classes() const { return share_of(options_.classes, options_.tensor); }
  void scale(const Pass& pass, const Tensor& x) const;
  // x of all tokens.
  Tensor gathered(const Pass& pass, const Tensor& x) const;
  void compute_logits(const Pass& pass, const Tensor& x, const Tensor& logits) const;
  void run_cross_entropy(const Pass& pass, ops::CrossEntropy call) const;
  void add_gradient(const Pass& pass, const Tensor& dlogits, const Tensor& x, bool last) const;

  // The order of the spec.
  enum Parameter : std::size_t { kWeight, kBias };
  enum Saved : std::size_t { kLogits, kStatistics, kAllTokens, kTensors };

  ClassifierOptions options_;
};

}  // namespace lockstep::nn
